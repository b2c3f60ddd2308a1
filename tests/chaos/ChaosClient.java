import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
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
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer and a member of a group, which tell on stdout what they are told, a line each: "A partition offset
 * value" for acknowledged, "R" for read, "C partition offset" for committed, "E what" for an error that is tried again
 * after, "F what" for one that must not be. They end one after the other with the lines of stdin.
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
        long pauseMs = Long.parseLong(arguments[4]);
        Thread producer = new Thread(() -> produce(bootstrap, topic, partitions, pauseMs));
        Thread consumer = new Thread(() -> consume(bootstrap, topic, group));
        producer.start();
        consumer.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        lines.readLine();
        produces = false;
        producer.join();
        say("D produced");
        lines.readLine();
        consumes = false;
        consumer.join();
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

    private static void consume(String bootstrap, String topic, String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("session.timeout.ms", "10000");
        settings.put("heartbeat.interval.ms", "1000");
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
}
