package shipping

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What a test reads of the state of the cluster.
type state struct {
	Topics []struct {
		Name       string
		Partitions []struct{ Leader int }
	}
}

var cluster *Tidelog

func TestMain(m *testing.M) {
	var err error
	cluster, err = StartTidelog("--brokers", "3", "--set", "min.insync.replicas=2")
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	cluster.Stop()
	os.Exit(code)
}

// start runs the service on empty topics, as long as the test, and returns a client for the test.
func start(t *testing.T) *kgo.Client {
	t.Helper()
	t.Cleanup(func() { Call[any](t, cluster, "cluster/reset", args{}) })
	for _, topic := range []string{"orders", "shipments"} {
		Call[any](t, cluster, "topics/create", args{"name": topic})
	}
	servers := kgo.SeedBrokers(strings.Split(cluster.BootstrapServers, ",")...)
	fast := kgo.MetadataMinAge(50 * time.Millisecond)
	client, err := kgo.NewClient(servers, fast, kgo.ConsumeTopics("shipments"))
	check(t, err)
	t.Cleanup(client.Close)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, servers, fast, kgo.HeartbeatInterval(100*time.Millisecond)) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-ended)
	})
	return client
}

func order(t *testing.T, client *kgo.Client, article string) {
	t.Helper()
	value, err := json.Marshal(Order{ID: 7, Article: article})
	check(t, err)
	record := &kgo.Record{Topic: "orders", Value: value}
	check(t, client.ProduceSync(t.Context(), record).FirstErr())
}

// shipped waits for the next shipments and compares them.
func shipped(t *testing.T, client *kgo.Client, labels ...string) {
	t.Helper()
	shippedAfter(t, client, "", labels...)
}

// shippedAfter is shipped, but the shipment before may come again: a member that loses its session
// before it has committed ships an order twice.
func shippedAfter(t *testing.T, client *kgo.Client, before string, labels ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var found []string
	for len(found) < len(labels) && ctx.Err() == nil {
		for _, record := range client.PollFetches(ctx).Records() {
			var shipment Shipment
			check(t, json.Unmarshal(record.Value, &shipment))
			if shipment.Label != before {
				found = append(found, shipment.Label)
			}
		}
	}
	if !slices.Equal(found, labels) {
		t.Fatalf("shipped: %q, expected %q", found, labels)
	}
}

func TestEveryOrderIsShipped(t *testing.T) {
	client := start(t)
	order(t, client, "tea")
	order(t, client, "cups")
	shipped(t, client, "tea of order 7", "cups of order 7")
}

func TestAMemberWhoseSessionExpiredGoesOn(t *testing.T) {
	client := start(t)
	order(t, client, "tea")
	shipped(t, client, "tea of order 7")
	Call[any](t, cluster, "groups/expire", args{"group_id": "shipping"})
	order(t, client, "cups")
	shippedAfter(t, client, "tea of order 7", "cups of order 7")
}

func TestShippingGoesOnWithoutALeader(t *testing.T) {
	client := start(t)
	order(t, client, "tea")
	shipped(t, client, "tea of order 7")
	found := Call[state](t, cluster, "cluster/state", args{"topics": []string{"orders"}})
	leader := found.Topics[0].Partitions[0].Leader
	Call[any](t, cluster, "brokers/stop", args{"broker": leader})
	t.Cleanup(func() { Call[any](t, cluster, "brokers/start", args{"broker": leader}) })
	order(t, client, "cups")
	shipped(t, client, "cups of order 7")
}

func TestNoShipmentIsLostWhileRequestsFail(t *testing.T) {
	client := start(t)
	fault := Call[struct{ ID, Hits int }](t, cluster, "faults/add", args{
		"match":   args{"api": "Produce", "topic": "shipments"},
		"effect":  args{"kind": "drop_connection", "after_work": true},
		"trigger": args{"times": 1},
	})
	order(t, client, "tea")
	order(t, client, "cups")
	shipped(t, client, "tea of order 7", "cups of order 7")
	found := Call[struct{ Hits int }](t, cluster, "faults/wait", args{"id": fault.ID})
	if found.Hits != 1 {
		t.Fatalf("%d hits", found.Hits)
	}
}
