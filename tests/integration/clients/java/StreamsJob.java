import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;

/**
 * One instance of a Kafka Streams application: copies a topic's lines in capitals, and counts their words.
 *
 * <p>Arguments: the topic, whose name the topics for its copies and its counts begin with; then settings as
 * {@code name=value}. It prints the states that it is in, and stops in order at SIGTERM.
 */
public final class StreamsJob {
    /** So long takes a line, so that there is always one under way when something is killed. */
    private static final long MILLISECONDS_A_LINE = 2;

    private StreamsJob() { }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "default.key.serde", Serdes.StringSerde.class,
            "default.value.serde", Serdes.StringSerde.class,
            // Each count is passed on, where a cache would keep the last one for each word until the next commit.
            "statestore.cache.max.bytes", "0"));
        Arrays.stream(arguments).skip(1).map(each -> each.split("=", 2)).forEach(each -> settings.put(each[0], each[1]));
        KafkaStreams streams = new KafkaStreams(copiesAndCounts(arguments[0]), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Topology copiesAndCounts(String topic) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(topic);
        lines.mapValues(StreamsJob::slowlyInCapitals).to(topic + "-copies");
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(topic + "-counts");
        return builder.build();
    }

    private static String slowlyInCapitals(String line) {
        try {
            Thread.sleep(MILLISECONDS_A_LINE);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
        return line.toUpperCase(Locale.ROOT);
    }
}
