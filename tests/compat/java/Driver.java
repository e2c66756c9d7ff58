// Runs Kafka's own tools and a Kafka client inside one JVM, because each JVM start costs a second.
//
// Reads one JSON object a line from standard input, answers one a line on standard output:
//   {"op": "tool", "main": class, "args": [...], "stdin": text, "timeout_ms": n}
//       -> {"exit": code, "out": text, "err": text}
//   {"op": "config", "settings": {name: value}}  -> {}   (checks them as a node's start does)
//   {"op": "start", "main": class, "args": [...]}  -> {}   (runs on; used for the broker itself)
//   remote_metadata_* go to RemoteMetadata.java, any other op to Client.java.
// A failing op answers {"error": "ExceptionClass: message"}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.utils.Exit;

public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What a tool's call of exit() becomes, so that the JVM lives on for the next tool. */
    static final class ToolExit extends RuntimeException {
        ToolExit(int code, String message) {
            super(message == null ? "exit " + code : message, null, false, false);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Client client = new Client();
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                serve(JSON.readTree(line), answer, client);
            } catch (Throwable failure) {
                answer = JSON.createObjectNode();
                answer.put("error", describe(failure));
            }
            answers.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String describe(Throwable failure) {
        Throwable cause = failure;
        while (cause.getCause() != null && cause.getClass().getName().startsWith("java.util.concurrent")) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName() + ": " + cause.getMessage();
    }

    private static void serve(JsonNode request, ObjectNode answer, Client client) throws Exception {
        switch (request.get("op").asText()) {
            case "tool" -> runTool(request, answer);
            case "config" -> checkConfig(request);
            case "start" -> startMain(request);
            case "remote_metadata_read", "remote_metadata_partitions", "remote_metadata_lineage",
                "remote_metadata_cache" -> RemoteMetadata.serve(request, answer);
            default -> client.serve(request, answer);
        }
    }

    private static String[] args(JsonNode request) {
        String[] args = new String[request.get("args").size()];
        for (int i = 0; i < args.length; i++) {
            args[i] = request.get("args").get(i).asText();
        }
        return args;
    }

    private static void checkConfig(JsonNode request) {
        Properties settings = new Properties();
        request.get("settings").fields().forEachRemaining(
            each -> settings.put(each.getKey(), each.getValue().asText()));
        kafka.server.KafkaConfig.fromProps(settings, false);
    }

    private static void startMain(JsonNode request) {
        String[] args = args(request);
        Thread thread = new Thread(() -> {
            try {
                invoke(request.get("main").asText(), args);
            } catch (Throwable failure) {
                failure.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void invoke(String mainClass, String[] args) throws Throwable {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause();
        }
    }

    private static void runTool(JsonNode request, ObjectNode answer) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream toolOut = new ByteArrayOutputStream();
        ByteArrayOutputStream toolErr = new ByteArrayOutputStream();
        byte[] input = request.path("stdin").asText("").getBytes(StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(toolOut, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(toolErr, true, StandardCharsets.UTF_8));
        int[] code = {0};
        boolean[] left = {false};
        Exit.Procedure leave = (status, message) -> {
            // Some tools catch what is thrown here and exit a second time: the first code counts.
            if (!left[0]) {
                code[0] = status;
            }
            left[0] = true;
            throw new ToolExit(status, message);
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        // What a tool does at the end of its JVM (the console producer flushes) is done when it ends.
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Thread tool = new Thread(() -> {
            try {
                invoke(request.get("main").asText(), args(request));
            } catch (ToolExit exit) {
                System.err.println(exit.getMessage());
            } catch (Throwable failure) {
                code[0] = 1;
                failure.printStackTrace();
            } finally {
                hooks.forEach(Runnable::run);
            }
        });
        tool.setDaemon(true);
        tool.start();
        tool.join(request.path("timeout_ms").asLong(60_000));
        if (tool.isAlive()) {
            tool.interrupt();
            tool.join(2_000);  // or its exit would be taken for that of the next tool
            code[0] = -1;
        }
        System.out.flush();
        System.setOut(out);
        System.setErr(err);
        Exit.resetExitProcedure();
        Exit.resetHaltProcedure();
        Exit.resetShutdownHookAdder();
        answer.put("exit", code[0]);
        answer.put("out", toolOut.toString(StandardCharsets.UTF_8));
        answer.put("err", toolErr.toString(StandardCharsets.UTF_8));
    }
}
