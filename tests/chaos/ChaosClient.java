import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer, a member of a group, and two workers that copy what the producer wrote in transactions. They tell
 * on stdout what they are told, a line each: "A partition offset value" for acknowledged, "R" for read, "C partition
 * offset" for committed, "T partition" for copied, "E what" for an error that is tried again after, "F what" for one that
 * must not be. They end one after the other with the lines of stdin.
 */
public final class ChaosClient {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static volatile boolean produces = true;
    private static volatile boolean consumes = true;

    private ChaosClient() {
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        String group = arguments[3];
        String copies = arguments[4];
        long pauseMs = Long.parseLong(arguments[5]);
        Map<String, Object> membership = "consumer".equals(arguments[6])
                ? Map.of("group.protocol", "consumer")
                : Map.of("session.timeout.ms", "10000", "heartbeat.interval.ms", "1000");
        Thread producer = new Thread(() -> produce(bootstrap, topic, partitions, pauseMs));
        Thread consumer = new Thread(() -> consume(bootstrap, topic, group, membership));
        List<Thread> workers = new ArrayList<>();
        for (int number = 1; number <= 2; number++) {
            String name = copies + "-" + number;
            workers.add(new Thread(() -> copy(bootstrap, topic, copies, name, membership)));
        }
        producer.start();
        consumer.start();
        workers.forEach(Thread::start);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        lines.readLine();
        produces = false;
        producer.join();
        say("D produced");
        lines.readLine();
        consumes = false;
        consumer.join();
        for (Thread worker : workers) {
            worker.join();
        }
        say("D consumed");
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    private static void produce(String bootstrap, String topic, int partitions, long pauseMs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "5");
        settings.put("delivery.timeout.ms", "600000");
        settings.put("max.block.ms", "600000");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.max.ms", "200");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; produces; number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    String value = "idempotent-java-" + partition + ":" + number + ":" + "x".repeat(100);
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                        if (error == null) {
                            say("A " + metadata.partition() + " " + metadata.offset() + " " + value);
                        } else {
                            say("F " + value.replace("x", "") + " is refused: " + error);
                        }
                    });
                }
                Thread.sleep(pauseMs);
            }
        } catch (Exception error) {
            say("F the producer ended: " + error);
        }
    }

    private static void consume(String bootstrap, String topic, String group, Map<String, Object> membership) {
        Map<String, Object> settings = new HashMap<>(membership);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.max.ms", "200");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            long committedAt = System.currentTimeMillis();
            while (consumes) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        say("R " + record.partition() + " " + record.offset() + " " + record.value());
                        TopicPartition place = new TopicPartition(record.topic(), record.partition());
                        positions.put(place, new OffsetAndMetadata(record.offset() + 1));
                    }
                    if (System.currentTimeMillis() - committedAt > 300) {
                        commit(consumer, positions);
                        committedAt = System.currentTimeMillis();
                    }
                } catch (OffsetOutOfRangeException | NoOffsetForPartitionException error) {
                    say("F the consumer is out of range: " + error);
                    return;
                } catch (KafkaException error) {
                    say("E consumer: " + error.getClass().getSimpleName());
                }
            }
            commit(consumer, positions);
        } catch (Exception error) {
            say("F the consumer ended: " + error);
        }
    }

    private static void commit(
            KafkaConsumer<String, String> consumer, Map<TopicPartition, OffsetAndMetadata> positions) {
        positions.keySet().retainAll(consumer.assignment());
        try {
            consumer.commitSync(positions, Duration.ofSeconds(15));
            positions.forEach((place, position) -> say("C " + place.partition() + " " + position.offset()));
        } catch (KafkaException error) {
            say("E commit: " + error.getClass().getSimpleName());
        }
        positions.clear();
    }

    /** Reads, and writes what was read with its offsets in one transaction; whatever fails is done again from there. */
    private static void copy(
            String bootstrap, String topic, String copies, String name, Map<String, Object> membership) {
        Map<String, Object> reads = new HashMap<>(membership);
        reads.put("bootstrap.servers", bootstrap);
        reads.put("group.id", copies);
        reads.put("enable.auto.commit", "false");
        reads.put("auto.offset.reset", "none");
        reads.put("isolation.level", "read_committed");
        reads.put("reconnect.backoff.max.ms", "200");
        reads.put("retry.backoff.max.ms", "200");
        KafkaProducer<String, String> producer = null;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            boolean isAhead = false;
            for (int number = 1; consumes; number++) {
                try {
                    if (producer == null) {
                        producer = transactional(bootstrap, name);
                        producer.initTransactions();
                    }
                    if (isAhead) {
                        // Not before there is a producer: what the one before has left open hides the offsets.
                        goBack(consumer);
                        isAhead = false;
                    }
                    copyLot(consumer, producer, copies, number % 8 != 0);
                    Thread.sleep(200);
                } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException error) {
                    say("F " + name + " is fenced: " + error);
                    return;
                } catch (InvalidTxnStateException error) {
                    say("F " + name + " is ended: " + error);
                    return;
                } catch (OffsetOutOfRangeException | NoOffsetForPartitionException error) {
                    say("F " + name + " is out of range: " + error);
                    return;
                } catch (KafkaException error) {
                    say("E copying: " + error.getClass().getSimpleName());
                    producer = aborted(producer);
                    isAhead = true;
                }
            }
        } catch (Exception error) {
            say("F " + name + " ended: " + error);
        } finally {
            if (producer != null) {
                producer.close(Duration.ofSeconds(5));
            }
        }
    }

    private static KafkaProducer<String, String> transactional(String bootstrap, String name) {
        Map<String, Object> writes = new HashMap<>();
        writes.put("bootstrap.servers", bootstrap);
        writes.put("transactional.id", name);
        writes.put("transaction.timeout.ms", "60000");
        writes.put("delivery.timeout.ms", "60000");
        writes.put("max.block.ms", "60000");
        writes.put("linger.ms", "5");
        writes.put("reconnect.backoff.max.ms", "200");
        writes.put("retry.backoff.max.ms", "200");
        return new KafkaProducer<>(writes, new StringSerializer(), new StringSerializer());
    }

    /** Some are aborted, so that there is something that no reader may be given. */
    private static void copyLot(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            String copies,
            boolean commits) throws InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(copies, record.partition(), null, record.value()));
            TopicPartition place = new TopicPartition(record.topic(), record.partition());
            ends.put(place, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        if (!commits) {
            producer.flush();
            producer.abortTransaction();
            goBack(consumer);
            return;
        }
        producer.commitTransaction();
        ends.keySet().forEach(place -> say("T " + place.partition()));
    }

    /** The producer where it may go on, else null. */
    private static KafkaProducer<String, String> aborted(KafkaProducer<String, String> producer) {
        if (producer == null) {
            return null;
        }
        try {
            producer.abortTransaction();
            return producer;
        } catch (KafkaException | IllegalStateException error) {
            say("E aborting: " + error.getClass().getSimpleName());
            producer.close(Duration.ZERO);
            return null;
        }
    }

    private static void goBack(KafkaConsumer<String, String> consumer) throws InterruptedException {
        while (consumes) {
            try {
                consumer.committed(consumer.assignment(), Duration.ofSeconds(30))
                        .forEach((place, position) -> consumer.seek(place, position.offset()));
                return;
            } catch (KafkaException error) {
                say("E copying, going back: " + error.getClass().getSimpleName());
                Thread.sleep(200);
            }
        }
    }
}
