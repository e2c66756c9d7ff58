import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A Kafka broker, or several, for tests: `tidelog serve`, controlled over HTTP. Copy this file.
 * It ends with this JVM, if not by `close`.
 */
class Tidelog implements AutoCloseable {
    private static final Pattern READY =
            Pattern.compile("tidelog ready bootstrap\\.servers=(\\S+) control=(\\S+)");
    private static final ObjectMapper JSON = new ObjectMapper();

    final String bootstrapServers;
    private final String control;
    private final Process process;
    private final HttpClient http = HttpClient.newHttpClient();

    /** Further arguments are those of `tidelog serve`: "--brokers", "3". */
    Tidelog(String... more) throws IOException {
        var command = new ArrayList<>(List.of("tidelog", "serve", "--port", "0"));
        command.addAll(List.of("--control", "127.0.0.1:0", "--until-stdin-ends"));
        command.addAll(List.of(more));
        // pip install 'tidelog[control]' comes first
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var line = process.inputReader().readLine();
        var ready = READY.matcher(String.valueOf(line));
        if (!ready.matches()) {
            throw new IOException("tidelog did not start: " + line);
        }
        bootstrapServers = ready.group(1);
        control = ready.group(2);
    }

    /** Makes a control call of the broker's /openapi.json: call("clock/advance", Map.of("hours", 25)). */
    JsonNode call(String name, Map<String, ?> arguments) throws IOException, InterruptedException {
        var body = HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(arguments));
        var request = HttpRequest.newBuilder(URI.create(control + "/v1/" + name)).POST(body).build();
        var response = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalArgumentException(name + ": " + response.body());
        }
        return JSON.readTree(response.body());
    }

    JsonNode call(String name) throws IOException, InterruptedException {
        return call(name, Map.of());
    }

    /** Requests of an API go wrong, so many of them; effects are in the docs of tidelog. */
    JsonNode fault(String api, Map<String, ?> effect, int times)
            throws IOException, InterruptedException {
        var match = Map.of("api", api);
        return call("faults/add", Map.of("match", match, "effect", effect, "trigger", Map.of("times", times)));
    }

    @Override
    public void close() throws IOException, InterruptedException {
        process.getOutputStream().close();
        process.waitFor();
    }
}
