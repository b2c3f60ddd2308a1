import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What programs do with transactions of the Java producer. */
final class JavaTransactions {
    private static final Duration A_MOMENT = Duration.ofMillis(100);

    private final String bootstrap;

    JavaTransactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, JavaClient.Scenario> all) {
        all.put("transactions_commit_and_abort", this::commitAndAbort);
        all.put("transactions_over_many_partitions", this::manyPartitions);
        all.put("transactions_fence_the_first_instance", this::fenceTheFirstInstance);
        all.put("transactions_read_process_write", this::readProcessWrite);
        all.put("transactions_are_described_and_aborted", this::describedAndAborted);
    }

    private void commitAndAbort() throws Exception {
        String topic = "java-transactions";
        JavaAdmin.createTopic(bootstrap, topic, 1, Map.of());
        try (KafkaProducer<String, String> producer = producer("java-transactions")) {
            producer.initTransactions();
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "of " + number));
                producer.send(new ProducerRecord<>(topic, "also of " + number));
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
        }
        List<String> committed = List.of("of 0", "also of 0", "of 2", "also of 2", "of 4", "also of 4");
        Scenarios.equal(committed, read(topic, "read_committed", 6), "what is committed");
        Scenarios.equal(12, read(topic, "read_uncommitted", 12).size(), "all of it");
    }

    private void manyPartitions() throws Exception {
        String topic = "java-transactions-wide";
        JavaAdmin.createTopic(bootstrap, topic, 12, Map.of());
        try (KafkaProducer<String, String> producer = producer("java-transactions-wide")) {
            producer.initTransactions();
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 12; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, number + " in " + partition));
                }
                if (number == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Set<String> found = Set.copyOf(read(topic, "read_committed", 24));
        Scenarios.equal(24, found.size(), "each once");
        Scenarios.check(found.stream().noneMatch(value -> value.startsWith("1 ")), "what is aborted is not there");
    }

    private void fenceTheFirstInstance() throws Exception {
        String topic = "java-transactions-fenced";
        JavaAdmin.createTopic(bootstrap, topic, 1, Map.of());
        try (KafkaProducer<String, String> first = producer("java-transactions-fenced");
                KafkaProducer<String, String> second = producer("java-transactions-fenced")) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "of the first")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "of the second")).get();
            try {
                first.commitTransaction();
                throw new AssertionError("the first instance committed");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                second.commitTransaction();
            }
        }
        Scenarios.equal(List.of("of the second"), read(topic, "read_committed", 1), "what is committed");
    }

    /** Input to output, with the offsets in the same transactions; every third one is aborted, and done again. */
    private void readProcessWrite() throws Exception {
        String input = "java-transactions-input";
        String output = "java-transactions-output";
        JavaAdmin.createTopic(bootstrap, input, 1, Map.of());
        JavaAdmin.createTopic(bootstrap, output, 1, Map.of());
        int count = 60;
        try (KafkaProducer<String, String> filling = producer(null)) {
            for (int number = 0; number < count; number++) {
                filling.send(new ProducerRecord<>(input, "v" + number));
            }
        }
        TopicPartition partition = new TopicPartition(input, 0);
        Map<String, Object> settings = settings();
        settings.put("group.id", "java-transactions");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "7");
        try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer = producer("java-transactions-loop")) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            long done = 0;
            int transactions = 0;
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (done < count) {
                Scenarios.check(System.nanoTime() < deadline, "only " + done + " within 30 s");
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(A_MOMENT).forEach(records::add);
                if (records.isEmpty()) {
                    continue;
                }
                long next = records.get(records.size() - 1).offset() + 1;
                producer.beginTransaction();
                records.forEach(record -> producer.send(new ProducerRecord<>(output, record.value() + "!")));
                producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(next)), consumer.groupMetadata());
                transactions++;
                if (transactions % 3 == 0) {
                    producer.abortTransaction();
                    consumer.seek(partition, done);
                } else {
                    producer.commitTransaction();
                    done = next;
                }
            }
            Scenarios.equal((long) count, consumer.committed(Set.of(partition)).get(partition).offset(), "committed");
        }
        List<String> found = read(output, "read_committed", count);
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            expected.add("v" + number + "!");
        }
        Scenarios.equal(expected, found, "each once, in order");
    }

    private void describedAndAborted() throws Exception {
        String topic = "java-transactions-hanging";
        String id = "java-transactions-hanging";
        JavaAdmin.createTopic(bootstrap, topic, 1, Map.of());
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(settings()); KafkaProducer<String, String> producer = producer(id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "hangs")).get();
            TransactionDescription described = admin.describeTransactions(Set.of(id)).description(id).get();
            Scenarios.equal(TransactionState.ONGOING, described.state(), "state");
            Scenarios.equal(Set.of(partition), described.topicPartitions(), "partitions");
            ListTransactionsOptions open = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING));
            Set<String> listed = admin.listTransactions(open).all().get().stream()
                .map(TransactionListing::transactionalId).collect(Collectors.toSet());
            Scenarios.check(listed.contains(id), "it is not in " + listed);
            ProducerState state = admin.describeProducers(Set.of(partition)).partitionResult(partition).get()
                .activeProducers().get(0);
            Scenarios.equal(0L, state.currentTransactionStartOffset().getAsLong(), "first offset");
            admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(), (short) state.producerEpoch(),
                state.coordinatorEpoch().orElse(0))).all().get();
            ProducerState ended = admin.describeProducers(Set.of(partition)).partitionResult(partition).get()
                .activeProducers().get(0);
            Scenarios.check(ended.currentTransactionStartOffset().isEmpty(), "it is still open");
            producer.abortTransaction();
        }
        Scenarios.equal(List.of(), read(topic, "read_committed", 0), "nothing is committed");
    }

    // What scenarios are made of

    private Map<String, Object> settings() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.metrics.push", "false"));
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> settings = settings();
        settings.put("delivery.timeout.ms", "30000");
        settings.put("request.timeout.ms", "15000");
        settings.put("max.block.ms", "30000");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** The values up to the end of all partitions, which must be `count`. */
    private List<String> read(String topic, String isolation, int count) {
        Map<String, Object> settings = settings();
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                Scenarios.check(System.nanoTime() < deadline, "no end within 30 s: " + values);
                consumer.poll(A_MOMENT).forEach(record -> values.add(record.value()));
            }
        }
        Scenarios.equal(count, values.size(), "values in " + topic);
        return values;
    }
}
