import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What programs do with the Java producer and consumer; the admin client's part is in JavaAdmin. */
public final class JavaClient {
    private static final Duration A_MOMENT = Duration.ofMillis(100);
    private static final String LATE = "no result within 30 s";

    private final String bootstrap;

    private JavaClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    interface Scenario {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        JavaClient client = new JavaClient(arguments[0]);
        Map<String, Scenario> scenarios = new TreeMap<>();
        scenarios.put("produce_every_compression", client::produceEveryCompression);
        scenarios.put("headers_keys_nulls_and_timestamps", client::headersKeysNullsAndTimestamps);
        scenarios.put("idempotent_producer_keeps_order", client::idempotentProducerKeepsOrder);
        scenarios.put("acks_zero_and_one", client::acksZeroAndOne);
        scenarios.put("too_large_records_are_refused", client::tooLargeRecordsAreRefused);
        scenarios.put("log_append_time", client::logAppendTime);
        scenarios.put("seek_pause_and_positions", client::seekPauseAndPositions);
        scenarios.put("offsets_for_times", client::offsetsForTimes);
        scenarios.put("commits_by_hand", client::commitsByHand);
        scenarios.put("commits_by_themselves", client::commitsByThemselves);
        scenarios.put("regex_subscription", client::regexSubscription);
        scenarios.put("cooperative_sticky_group", client::cooperativeStickyGroup);
        scenarios.put("static_members", client::staticMembers);
        scenarios.put("old_generation_cannot_commit", client::oldGenerationCannotCommit);
        scenarios.put("reset_policies", client::resetPolicies);
        scenarios.put("read_committed", client::readCommitted);
        scenarios.put("large_records_and_many_partitions", client::largeRecordsAndManyPartitions);
        scenarios.put("group_of_the_newer_protocol", client::groupOfTheNewerProtocol);
        new JavaAdmin(client.bootstrap).addTo(scenarios);
        new JavaTransactions(client.bootstrap).addTo(scenarios);
        Scenarios.run(scenarios);
    }

    // Producing

    private void produceEveryCompression() throws Exception {
        String topic = "java-compression";
        List<String> sent = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", "20")) {
                for (int number = 0; number < 200; number++) {
                    sent.add(codec + "-" + number + "-" + "x".repeat(100));
                    producer.send(new ProducerRecord<>(topic, 0, "k" + number, sent.get(sent.size() - 1)));
                }
            }
        }
        Scenarios.equal(sent, values(readAll(topic, 1000)), "values");
    }

    private void headersKeysNullsAndTimestamps() throws Exception {
        String topic = "java-headers";
        try (KafkaProducer<String, String> producer = producer()) {
            ProducerRecord<String, String> first = new ProducerRecord<>(topic, 0, 1_600_000_000_123L, null, "no key");
            first.headers().add("trace", "a".getBytes(StandardCharsets.UTF_8)).add("trace", null).add("", new byte[0]);
            producer.send(first);
            producer.send(new ProducerRecord<String, String>(topic, 0, (Long) 1_600_000_000_001L, "tombstone", (String) null));
            producer.send(new ProducerRecord<>(topic, 0, 0L, "ключ", "значение ☃"));
        }
        List<ConsumerRecord<String, String>> records = readAll(topic, 3);
        ConsumerRecord<String, String> first = records.get(0);
        Scenarios.equal(3, first.headers().toArray().length, "headers");
        Scenarios.equal("a", new String(first.headers().toArray()[0].value()), "header value");
        Scenarios.equal(null, first.headers().toArray()[1].value(), "null header");
        Scenarios.equal(0, first.headers().toArray()[2].value().length, "empty header");
        Scenarios.equal(null, first.key(), "key");
        Scenarios.equal(null, records.get(1).value(), "tombstone");
        Scenarios.equal("ключ=значение ☃", records.get(2).key() + "=" + records.get(2).value(), "text");
        Scenarios.equal(
            List.of(1_600_000_000_123L, 1_600_000_000_001L, 0L),
            records.stream().map(ConsumerRecord::timestamp).collect(Collectors.toList()),
            "timestamps");
        Scenarios.equal("CreateTime", first.timestampType().name, "timestamp type");
    }

    private void idempotentProducerKeepsOrder() throws Exception {
        String topic = "java-idempotent";
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                producer("enable.idempotence", "true", "batch.size", "500", "linger.ms", "0")) {
            for (int number = 0; number < 3000; number++) {
                answers.add(producer.send(new ProducerRecord<>(topic, 0, null, "v" + number)));
            }
        }
        for (int number = 0; number < answers.size(); number++) {
            Scenarios.equal((long) number, answers.get(number).get().offset(), "offset of record " + number);
        }
        List<String> expected = IntStream.range(0, 3000).mapToObj(number -> "v" + number).collect(Collectors.toList());
        Scenarios.equal(expected, values(readAll(topic, 3000)), "values");
    }

    private void acksZeroAndOne() throws Exception {
        String topic = "java-acks";
        try (KafkaProducer<String, String> producer = producer("acks", "0", "enable.idempotence", "false")) {
            Scenarios.equal(-1L, producer.send(new ProducerRecord<>(topic, "zero")).get().offset(), "offset with acks=0");
        }
        try (KafkaProducer<String, String> producer = producer("acks", "1", "enable.idempotence", "false")) {
            RecordMetadata metadata = producer.send(new ProducerRecord<>(topic, "one")).get();
            Scenarios.equal(1L, metadata.offset(), "offset with acks=1");
        }
        Scenarios.equal(List.of("zero", "one"), values(readAll(topic, 2)), "values");
    }

    private void tooLargeRecordsAreRefused() throws Exception {
        String topic = "java-too-large";
        try (KafkaProducer<String, String> producer = producer("max.request.size", "9000000")) {
            producer.send(new ProducerRecord<>(topic, "small")).get();
            Scenarios.fails(RecordTooLargeException.class, producer.send(new ProducerRecord<>(topic, "y".repeat(2_000_000)))::get);
            producer.send(new ProducerRecord<>(topic, "small again")).get();
        }
        Scenarios.equal(List.of("small", "small again"), values(readAll(topic, 2)), "values");
    }

    private void logAppendTime() throws Exception {
        String topic = "java-append-time";
        JavaAdmin.createTopic(bootstrap, topic, 1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        long answered;
        try (KafkaProducer<String, String> producer = producer()) {
            answered = producer.send(new ProducerRecord<>(topic, 0, 5L, null, "v")).get().timestamp();
        }
        ConsumerRecord<String, String> record = readAll(topic, 1).get(0);
        Scenarios.equal("LogAppendTime", record.timestampType().name, "timestamp type");
        Scenarios.equal(answered, record.timestamp(), "timestamp answered to the producer");
        Scenarios.check(record.timestamp() >= before, "the broker's time");
    }

    // Consuming

    private void seekPauseAndPositions() throws Exception {
        String topic = "java-seek";
        JavaAdmin.createTopic(bootstrap, topic, 2, Map.of());
        fill(topic, 0, 100);
        fill(topic, 1, 50);
        TopicPartition zero = new TopicPartition(topic, 0);
        TopicPartition one = new TopicPartition(topic, 1);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(zero, one));
            Scenarios.equal(Map.of(zero, 0L, one, 0L), consumer.beginningOffsets(List.of(zero, one)), "beginning");
            Scenarios.equal(Map.of(zero, 100L, one, 50L), consumer.endOffsets(List.of(zero, one)), "end");
            consumer.pause(List.of(one));
            consumer.seek(zero, 90);
            List<ConsumerRecord<String, String>> records = poll(consumer, 10);
            Scenarios.equal(Set.of(0), records.stream().map(ConsumerRecord::partition).collect(Collectors.toSet()), "not paused");
            Scenarios.equal(90L, records.get(0).offset(), "after seek");
            consumer.resume(List.of(one));
            consumer.seekToBeginning(List.of(one));
            Scenarios.equal(50, poll(consumer, 50).size(), "resumed");
            consumer.seekToEnd(List.of(zero));
            Scenarios.equal(100L, consumer.position(zero), "position at the end");
            fill(topic, 0, 1);
            Scenarios.equal(100L, poll(consumer, 1).get(0).offset(), "only the new one");
            Scenarios.equal(0L, consumer.currentLag(zero).orElse(-1), "lag");
            consumer.seek(zero, 5);
            Scenarios.equal(5L, poll(consumer, 1).get(0).offset(), "back again");
            Scenarios.equal(2, consumer.partitionsFor(topic).size(), "partitions");
            Scenarios.check(consumer.listTopics().containsKey(topic), "listed");
        }
    }

    private void offsetsForTimes() throws Exception {
        String topic = "java-times";
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer("linger.ms", "50", "compression.type", "lz4")) {
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_600_000_000_000L + number * 10, null, "v" + number));
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 1_600_000_000_335L)).get(partition);
            Scenarios.equal(34L, found.offset(), "offset");
            Scenarios.equal(1_600_000_000_340L, found.timestamp(), "timestamp");
            Scenarios.equal(0L, consumer.offsetsForTimes(Map.of(partition, 0L)).get(partition).offset(), "the first");
            Scenarios.equal(
                null, consumer.offsetsForTimes(Map.of(partition, 1_700_000_000_000L)).get(partition), "in the future");
        }
    }

    private void commitsByHand() throws Exception {
        String topic = "java-commits";
        fill(topic, 0, 30);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("group.id", "java-commits", "enable.auto.commit", "false")) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 30);
            Scenarios.equal(null, consumer.committed(Set.of(partition)).get(partition), "nothing committed yet");
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(10, Optional.of(0), "so far, so good")));
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            Scenarios.equal(10L, committed.offset(), "committed");
            Scenarios.equal("so far, so good", committed.metadata(), "metadata");
            Scenarios.equal(Optional.of(0), committed.leaderEpoch(), "leader epoch");
            boolean[] called = {false};
            consumer.commitAsync((offsets, error) -> called[0] = error == null && offsets.get(partition).offset() == 30);
            until(() -> {
                consumer.poll(A_MOMENT);
                return called[0];
            });
            consumer.commitSync();
            Scenarios.equal(30L, consumer.committed(Set.of(partition)).get(partition).offset(), "all committed");
        }
        fill(topic, 0, 1);
        try (KafkaConsumer<String, String> consumer = consumer("group.id", "java-commits")) {
            consumer.subscribe(List.of(topic));
            Scenarios.equal(30L, poll(consumer, 1).get(0).offset(), "where the next member goes on");
        }
    }

    private void commitsByThemselves() throws Exception {
        String topic = "java-auto";
        fill(topic, 0, 20);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer =
                consumer("group.id", "java-auto", "enable.auto.commit", "true", "auto.commit.interval.ms", "50")) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 20);
            until(() -> {
                consumer.poll(A_MOMENT);
                OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
                return committed != null && committed.offset() == 20;
            });
        }
    }

    private void regexSubscription() throws Exception {
        fill("java-regex-a", 0, 3);
        fill("java-regex-b", 0, 3);
        fill("java-noregex", 0, 3);
        try (KafkaConsumer<String, String> consumer = consumer("group.id", "java-regex", "metadata.max.age.ms", "300")) {
            consumer.subscribe(Pattern.compile("java-regex-.*"));
            Scenarios.equal(6, poll(consumer, 6).size(), "records of both");
            fill("java-regex-c", 0, 4);
            List<ConsumerRecord<String, String>> later = poll(consumer, 4);
            Scenarios.equal(Set.of("java-regex-c"), topics(later), "a topic that came later");
            Scenarios.equal(Set.of("java-regex-a", "java-regex-b", "java-regex-c"), names(consumer.assignment()), "assigned");
        }
    }

    // Groups

    /** Remembers what a member was given and what was taken from it. */
    private static final class Watcher implements ConsumerRebalanceListener {
        final Set<TopicPartition> revoked = new HashSet<>();
        int assignments;

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked.addAll(partitions);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments++;
        }
    }

    private void cooperativeStickyGroup() throws Exception {
        String topic = "java-cooperative";
        JavaAdmin.createTopic(bootstrap, topic, 6, Map.of());
        String[] settings = {
            "group.id", "java-cooperative", "partition.assignment.strategy", CooperativeStickyAssignor.class.getName()
        };
        Watcher watcher = new Watcher();
        try (KafkaConsumer<String, String> first = consumer(settings)) {
            first.subscribe(List.of(topic), watcher);
            until(() -> assigned(first, 6));
            Set<TopicPartition> before = new HashSet<>(first.assignment());
            try (KafkaConsumer<String, String> second = consumer(settings)) {
                second.subscribe(List.of(topic));
                until(() -> assigned(first, 3) & assigned(second, 3));
                Scenarios.equal(3, watcher.revoked.size(), "only what moves is revoked");
                Scenarios.check(before.containsAll(first.assignment()), "the rest stays");
                Set<TopicPartition> all = new HashSet<>(first.assignment());
                all.addAll(second.assignment());
                Scenarios.equal(before, all, "all partitions");
            }
            until(() -> assigned(first, 6));
        }
    }

    private void staticMembers() throws Exception {
        String topic = "java-static";
        JavaAdmin.createTopic(bootstrap, topic, 4, Map.of());
        Watcher watcher = new Watcher();
        String[] one = {"group.id", "java-static", "group.instance.id", "one"};
        try (KafkaConsumer<String, String> stays = consumer("group.id", "java-static", "group.instance.id", "two")) {
            stays.subscribe(List.of(topic), watcher);
            Set<TopicPartition> its = new HashSet<>();
            String member;
            try (KafkaConsumer<String, String> leaves = consumer(one)) {
                leaves.subscribe(List.of(topic));
                until(() -> assigned(stays, 2) & assigned(leaves, 2));
                its.addAll(leaves.assignment());
                member = leaves.groupMetadata().memberId();
            }
            int assignments = watcher.assignments;
            try (KafkaConsumer<String, String> back = consumer(one)) {
                back.subscribe(List.of(topic));
                until(() -> assigned(stays, 2) & assigned(back, 2));
                Scenarios.equal(its, back.assignment(), "the same partitions as before");
                Scenarios.check(!member.equals(back.groupMetadata().memberId()), "another member id");
                Scenarios.equal(assignments, watcher.assignments, "the other member saw no rebalance");
            }
        }
    }

    private void oldGenerationCannotCommit() throws Exception {
        String topic = "java-fenced";
        fill(topic, 0, 5);
        String[] settings = {
            "group.id", "java-fenced", "enable.auto.commit", "false", "max.poll.interval.ms", "1500",
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "300",
        };
        try (KafkaConsumer<String, String> slow = consumer(settings)) {
            slow.subscribe(List.of(topic));
            poll(slow, 5);
            try (KafkaConsumer<String, String> other = consumer(settings)) {
                other.subscribe(List.of(topic));
                Scenarios.equal(5, poll(other, 5).size(), "the other member takes over");
                Scenarios.fails(CommitFailedException.class, slow::commitSync);
            }
        }
    }

    private void resetPolicies() throws Exception {
        String topic = "java-reset";
        fill(topic, 0, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 99);
            Scenarios.fails(OffsetOutOfRangeException.class, () -> poll(consumer, 1));
        }
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "none", "group.id", "java-reset")) {
            consumer.assign(List.of(partition));
            Scenarios.fails(NoOffsetForPartitionException.class, () -> poll(consumer, 1));
        }
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "latest")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 99);
            consumer.poll(A_MOMENT);
            until(() -> {
                consumer.poll(A_MOMENT);
                return consumer.position(partition) == 10;
            });
        }
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "by_duration:PT1H")) {
            consumer.assign(List.of(partition));
            Scenarios.equal(10, poll(consumer, 10).size(), "all of the last hour");
        }
    }

    private void readCommitted() throws Exception {
        String topic = "java-read-committed";
        fill(topic, 0, 12);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(partition));
            Scenarios.equal(12, poll(consumer, 12).size(), "records outside of transactions");
            Scenarios.equal(12L, consumer.endOffsets(List.of(partition)).get(partition), "last stable offset");
        }
    }

    private void largeRecordsAndManyPartitions() throws Exception {
        String topic = "java-large";
        JavaAdmin.createTopic(bootstrap, topic, 16, Map.of("max.message.bytes", "6000000"));
        byte[] large = new byte[5_000_000];
        large[4_999_999] = 7;
        Map<String, Object> settings = settings("max.request.size", "9000000", "buffer.memory", "100000000");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int partition = 0; partition < 16; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, partition == 3 ? large : new byte[partition]));
            }
        }
        // A record above every limit of the fetch is given all the same.
        Map<String, Object> small = settings("max.partition.fetch.bytes", "1000", "fetch.max.bytes", "5000", "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(small, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(IntStream.range(0, 16).mapToObj(number -> new TopicPartition(topic, number)).collect(Collectors.toList()));
            Map<Integer, Integer> sizes = new TreeMap<>();
            until(() -> {
                consumer.poll(A_MOMENT).forEach(record -> sizes.put(record.partition(), record.value().length));
                return sizes.size() == 16;
            });
            Scenarios.equal(5_000_000, sizes.get(3), "the large one");
            Scenarios.equal(15, sizes.get(15), "a small one");
        }
    }

    // Groups of KIP-848

    private void groupOfTheNewerProtocol() throws Exception {
        String topic = "java-848";
        fill(topic, 0, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        String[] member = {"group.id", "java-848", "group.protocol", "consumer", "enable.auto.commit", "false"};
        try (KafkaConsumer<String, String> consumer = consumer(member)) {
            consumer.subscribe(List.of(topic));
            poll(consumer, 10);
            consumer.commitSync();
            Scenarios.equal(10L, consumer.committed(Set.of(partition)).get(partition).offset(), "all committed");
        }
        fill(topic, 0, 1);
        try (KafkaConsumer<String, String> consumer = consumer(member)) {
            consumer.subscribe(List.of(topic));
            Scenarios.equal(10L, poll(consumer, 1).get(0).offset(), "where the next member goes on");
        }
    }

    // What scenarios are made of

    private Map<String, Object> settings(String... pairs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.metrics.push", "false");
        for (int at = 0; at < pairs.length; at += 2) {
            settings.put(pairs[at], pairs[at + 1]);
        }
        return settings;
    }

    private KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String... pairs) {
        Map<String, Object> settings = settings(pairs);
        settings.putIfAbsent(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private void fill(String topic, int partition, int count) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, partition, "key", "v" + number));
            }
        }
    }

    private List<ConsumerRecord<String, String>> readAll(String topic, int count) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            return poll(consumer, count);
        }
    }

    /** Polls until `count` records are there; more than that is an error too. */
    private static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count)
            throws Exception {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        until(() -> {
            ConsumerRecords<String, String> polled = consumer.poll(A_MOMENT);
            polled.forEach(records::add);
            return records.size() >= count;
        });
        return records;
    }

    private static boolean assigned(KafkaConsumer<String, String> consumer, int partitions) {
        consumer.poll(Duration.ofMillis(20));
        return consumer.assignment().size() == partitions;
    }

    private static void until(BooleanSupplier done) {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!done.getAsBoolean()) {
            Scenarios.check(System.nanoTime() < deadline, LATE);
        }
    }

    private static List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).collect(Collectors.toList());
    }

    private static Set<String> topics(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::topic).collect(Collectors.toCollection(TreeSet::new));
    }

    private static Set<String> names(Set<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::topic).collect(Collectors.toCollection(TreeSet::new));
    }
}
