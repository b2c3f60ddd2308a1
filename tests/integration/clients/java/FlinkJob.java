import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job in this JVM that copies a topic's lines in capitals, exactly once, and fails once on its way.
 *
 * <p>Arguments: bootstrap servers, the topic, the line that it fails at, a file that says that it did; then Flink's
 * settings as {@code name=value}.
 */
public final class FlinkJob {
    private static final int SUBTASKS = 2;
    /** So long takes a line, so that checkpoints come on the way. */
    private static final long MILLISECONDS_A_LINE = 4;

    private FlinkJob() { }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        String topic = arguments[1];
        Configuration settings = new Configuration();
        Arrays.stream(arguments).skip(4).map(each -> each.split("=", 2)).forEach(each -> settings.setString(each[0], each[1]));
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(SUBTASKS, settings);
        job.fromSource(source(servers, topic), WatermarkStrategy.noWatermarks(), "lines")
            .map(new SlowlyInCapitals(arguments[2], arguments[3]))
            .sinkTo(sink(servers, topic));
        job.execute("copies");
    }

    /** Without an end: one with an end does not come to it when it was restored from a checkpoint. */
    private static KafkaSource<String> source(String servers, String topic) {
        return KafkaSource.<String>builder()
            .setBootstrapServers(servers)
            .setTopics(topic)
            .setGroupId(topic)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    }

    private static KafkaSink<String> sink(String servers, String topic) {
        return KafkaSink.<String>builder()
            .setBootstrapServers(servers)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(topic + "-copies").setValueSerializationSchema(new SimpleStringSchema()).build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(topic)
            .setProperty("transaction.timeout.ms", "60000")
            .build();
    }

    private static final class SlowlyInCapitals implements MapFunction<String, String> {
        private static final long serialVersionUID = 1L;

        private final String failsAt;
        private final String failed;

        SlowlyInCapitals(String failsAt, String failed) {
            this.failsAt = failsAt;
            this.failed = failed;
        }

        @Override
        public String map(String line) throws Exception {
            Thread.sleep(MILLISECONDS_A_LINE);
            if (line.equals(failsAt) && !Files.exists(Path.of(failed))) {
                Files.createFile(Path.of(failed));
                throw new IllegalStateException("fails once");
            }
            return line.toUpperCase(Locale.ROOT);
        }
    }
}
