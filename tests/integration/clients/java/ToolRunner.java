import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's shell tools one after the other in one JVM, so that a test pays for one start.
 *
 * <p>Each line of standard input is {"class": ..., "arguments": [...], "stdin": ...}; the answer is one line
 * `answer {"status": ..., "stdout": ..., "stderr": ...}`. A tool is started through its `main`, as its script does. Only the
 * end of the process, which all of them ask of {@link Exit}, becomes an exception; some tools catch that one too and go
 * on to another exit, so that what counts is the first exit and what was written before it.
 */
public final class ToolRunner {
    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** One run: its standard streams, and how and with what output it ended. */
    private static final class Run {
        final ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        final ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        private Map<String, Object> answer;

        /** Runs what the tool wanted to run when its process ends, and takes down how it ended. */
        synchronized Map<String, Object> end(int status) {
            if (answer == null) {
                hooks.forEach(Runnable::run);
                System.out.flush();
                System.err.flush();
                answer = new LinkedHashMap<>();
                answer.put("status", status);
                answer.put("stdout", stdout.toString(StandardCharsets.UTF_8));
                answer.put("stderr", stderr.toString(StandardCharsets.UTF_8));
            }
            return answer;
        }
    }

    /** What a tool's own threads print after its end goes to the same stream, without this. */
    private static final String ANSWER = "answer ";

    private static volatile Run current;

    private static void exit(int status) {
        current.end(status);
        throw new Exited();
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        ObjectMapper json = new ObjectMapper();
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, task) -> current.hooks.add(task));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(ANSWER + json.writeValueAsString(run(json.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> run(JsonNode command) throws Exception {
        String[] arguments = new String[command.get("arguments").size()];
        for (int at = 0; at < arguments.length; at++) {
            arguments[at] = command.get("arguments").get(at).asText();
        }
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        Run run = new Run();
        current = run;
        System.setOut(new PrintStream(run.stdout, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(run.stderr, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        try {
            Class<?> tool = Class.forName(command.get("class").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return run.end(0);
        } catch (InvocationTargetException wrapped) {
            if (!(wrapped.getCause() instanceof Exited)) {
                wrapped.getCause().printStackTrace(); // As the JVM does with what leaves `main`; its status is 1.
            }
            return run.end(1);
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
    }
}
