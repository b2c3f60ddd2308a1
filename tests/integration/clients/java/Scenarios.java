import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

import com.fasterxml.jackson.databind.ObjectMapper;

/** Runs scenarios by name and prints one line of JSON for each; and what they assert with. */
final class Scenarios {
    private Scenarios() { }

    static void run(Map<String, JavaClient.Scenario> scenarios) {
        ObjectMapper json = new ObjectMapper();
        try {
            for (Map.Entry<String, JavaClient.Scenario> scenario : scenarios.entrySet()) {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("scenario", scenario.getKey());
                long start = System.nanoTime();
                try {
                    scenario.getValue().run();
                    line.put("error", null);
                } catch (Exception | AssertionError error) {
                    line.put("error", error + " at " + Arrays.stream(error.getStackTrace())
                        .filter(frame -> frame.getClassName().startsWith("Java")).findFirst().orElse(null)
                        + (error.getCause() == null ? "" : " because of " + error.getCause()));
                }
                line.put("seconds", Math.round((System.nanoTime() - start) / 1e7) / 100.0);
                System.out.println(json.writeValueAsString(line));
            }
        } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
        System.exit(0);
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + ": " + brief(found) + " and not " + brief(expected));
    }

    /** What `action` fails with, which must be of `type`, perhaps inside the exception of a future. */
    static Throwable fails(Class<? extends Throwable> type, JavaClient.Scenario action) throws Exception {
        try {
            action.run();
        } catch (Exception error) {
            Throwable cause = error;
            while (cause instanceof ExecutionException || cause instanceof CompletionException) {
                cause = cause.getCause();
            }
            check(type.isInstance(cause), "failed with " + cause + " and not " + type.getSimpleName());
            return cause;
        }
        throw new AssertionError("did not fail with " + type.getSimpleName());
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 300 ? text : text.substring(0, 300) + "...";
    }
}
