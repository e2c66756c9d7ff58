import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.cli.ConnectStandalone;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.standalone.StandaloneHerder;
import org.apache.kafka.connect.util.FutureCallback;

/**
 * What `connect-standalone` runs, in this JVM: "connect_start" with the settings of the worker and of its
 * connectors, "connect_stop". "translated_offsets" is what MirrorMaker 2's checkpoints say of a group.
 */
final class ConnectWorker {
    private static final long WAIT_S = 60;
    private Connect<StandaloneHerder> running;

    void serve(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "connect_start" -> start(request);
            case "connect_stop" -> {
                running.stop();
                running.awaitStop();
            }
            default -> translated(request, answer);
        }
    }

    private void start(JsonNode request) throws Exception {
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        try {
            running = new ConnectStandalone() { }.startConnect(settings(request.get("worker")));
            for (JsonNode connector : request.get("connectors")) {
                FutureCallback<Object> made = new FutureCallback<>();
                running.herder().putConnectorConfig(connector.get("name").asText(), settings(connector),
                    TargetState.STARTED, false, (error, info) -> made.onCompletion(error, info));
                made.get(WAIT_S, TimeUnit.SECONDS);
            }
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
    }

    private static Map<String, String> settings(JsonNode given) {
        Map<String, String> settings = new HashMap<>();
        given.properties().forEach(e -> settings.put(e.getKey(), e.getValue().asText()));
        return settings;
    }

    private static void translated(JsonNode request, ObjectNode answer) throws Exception {
        Map<String, Object> settings = new HashMap<>(settings(request.get("settings")));
        ArrayNode offsets = answer.putArray("offsets");
        RemoteClusterUtils.translateOffsets(settings, Client.text(request, "cluster"),
            Client.text(request, "group"), Duration.ofSeconds(WAIT_S)).forEach((partition, offset) ->
                offsets.addArray().add(partition.topic()).add(partition.partition()).add(offset.offset()));
    }
}
