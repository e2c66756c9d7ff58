// What the load of `load` can't ask: topics with settings, where their segments are, and how long
// it takes until they are elsewhere. One JSON object on standard output:
// tier create|delete|offsets|copied|pace|cancel|move -bootstrap HOST:PORT -topic NAME ...
// All of it speaks of partition 0.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	bootstrap = flag.String("bootstrap", "", "addresses of the brokers, with commas")
	topic     = flag.String("topic", "", "topic")
	settings  = flag.String("settings", "", "of a new topic: KEY=VALUE, with commas")
	replicas  = flag.String("replicas", "", "node ids, with commas, the leader first; empty leaves it to the broker")
	count     = flag.Int("count", 0, "records, rolls or requests")
	size      = flag.Int("size", 1024, "bytes of a record's value")
	rate      = flag.Int("rate", 1000, "records a second")
	spread    = flag.Duration("spread", 0, "how long to wait, by chance, before each roll")
	patience  = flag.Duration("patience", 2*time.Minute, "before giving up")
)

const (
	earliest      = -2
	latest        = -1
	earliestLocal = -4
	latestTiered  = -5
	poll          = 2 * time.Millisecond
	stride        = 7919 // a prime: reads that follow each other are in different chunks
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(*bootstrap, ",")...))...)
	check(err)
	return c
}

func nodes() []int32 {
	var ids []int32
	for _, word := range strings.Split(*replicas, ",") {
		id, err := strconv.Atoi(word)
		check(err)
		ids = append(ids, int32(id))
	}
	return ids
}

func create(ctx context.Context, c *kgo.Client) map[string]any {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 30_000
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = *topic, 1, 1
	if *replicas != "" {
		wanted.NumPartitions, wanted.ReplicationFactor = -1, -1
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Replicas = nodes()
		wanted.ReplicaAssignment = append(wanted.ReplicaAssignment, assignment)
	}
	for _, pair := range strings.Split(*settings, ",") {
		if key, value, found := strings.Cut(pair, "="); found {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = key, &value
			wanted.Configs = append(wanted.Configs, config)
		}
	}
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, c)
	check(err)
	check(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	return map[string]any{}
}

func deleteTopic(ctx context.Context, c *kgo.Client) map[string]any {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 30_000
	request.TopicNames = []string{*topic}
	wanted := kmsg.NewDeleteTopicsRequestTopic()
	wanted.Topic = topic
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, c)
	check(err)
	check(kerr.ErrorForCode(answer.Topics[0].ErrorCode))
	return map[string]any{}
}

// offset of one of the special timestamps; an error while the broker does not know yet.
func offset(ctx context.Context, c *kgo.Client, special int64) (int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.CurrentLeaderEpoch, part.Timestamp = -1, special
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic, wanted.Partitions = *topic, []kmsg.ListOffsetsRequestTopicPartition{part}
	request.Topics = []kmsg.ListOffsetsRequestTopic{wanted}
	answer, err := request.RequestWith(ctx, c)
	if err != nil {
		return 0, err
	}
	found := answer.Topics[0].Partitions[0]
	return found.Offset, kerr.ErrorForCode(found.ErrorCode)
}

func offsets(ctx context.Context, c *kgo.Client) map[string]any {
	facts := map[string]any{}
	for name, special := range map[string]int64{
		"start": earliest, "local_start": earliestLocal, "tiered": latestTiered, "end": latest,
	} {
		found, err := offset(ctx, c, special)
		check(err)
		facts[name] = found
	}
	return facts
}

// copied rolls a segment of 1 MiB with each third record of 256 KiB, and measures from the
// acknowledgement of the record that rolls until the segment before it is told to be in the tier.
func copied(ctx context.Context, c *kgo.Client) map[string]any {
	value := make([]byte, 256<<10)
	produce := func() int64 {
		record, err := c.ProduceSync(ctx, &kgo.Record{Topic: *topic, Partition: 0, Value: value}).First()
		check(err)
		return record.Offset
	}
	produce()
	produce()
	produce()
	var milliseconds []float64
	for len(milliseconds) < *count {
		if *spread > 0 {
			time.Sleep(time.Duration(rand.Int63n(int64(*spread))))
		}
		last := produce() - 1
		rolled := time.Now()
		for {
			tiered, err := offset(ctx, c, latestTiered)
			if err == nil && tiered >= last {
				break
			}
			time.Sleep(poll)
		}
		milliseconds = append(milliseconds, float64(time.Since(rolled).Microseconds())/1e3)
		produce()
		produce()
	}
	return map[string]any{"ms": milliseconds}
}

// pace produces at a steady rate and measures from before Produce to the acknowledgement.
func pace(ctx context.Context, c *kgo.Client) map[string]any {
	value := make([]byte, *size)
	var lock sync.Mutex
	var times []time.Duration
	began := time.Now()
	for i := 0; i < *count; i++ {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(*rate))
		if early := time.Until(due); early > time.Millisecond {
			time.Sleep(early)
		}
		sent := time.Now()
		record := &kgo.Record{Topic: *topic, Partition: 0, Value: value}
		c.Produce(ctx, record, func(_ *kgo.Record, err error) {
			check(err)
			lock.Lock()
			defer lock.Unlock()
			times = append(times, time.Since(sent))
		})
	}
	check(c.Flush(ctx))
	times = times[len(times)/10:]
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Nanoseconds()) / 1e3
	}
	return map[string]any{"p50_us": at(0.5), "p99_us": at(0.99), "seconds": time.Since(began).Seconds()}
}

// cancel asks for remote records on a connection of its own and leaves without waiting; again and
// again, from all over what is remote alone. Only where a segment starts is no index needed.
func cancel(ctx context.Context, c *kgo.Client) map[string]any {
	start, err := offset(ctx, c, earliest)
	check(err)
	end, err := offset(ctx, c, earliestLocal)
	check(err)
	if end-start < 2 {
		check(fmt.Errorf("nothing is remote from %d to %d", start, end))
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.ReplicaID, fetch.MaxWaitMillis, fetch.MinBytes = -1, 10_000, 1
	fetch.MaxBytes, fetch.SessionID, fetch.SessionEpoch = 1<<20, 0, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes, part.CurrentLeaderEpoch = 1<<20, -1
	wanted := kmsg.NewFetchRequestTopic()
	wanted.Topic, wanted.Partitions = *topic, []kmsg.FetchRequestTopicPartition{part}
	fetch.Topics = []kmsg.FetchRequestTopic{wanted}
	fetch.SetVersion(12)
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))
	began := time.Now()
	for i := 0; i < *count; i++ {
		fetch.Topics[0].Partitions[0].FetchOffset = start + 1 + int64(i)*stride%(end-start-1)
		frame := formatter.AppendRequest(nil, fetch, 1)
		connection, err := net.Dial("tcp", *bootstrap)
		check(err)
		// No port is left waiting: the broker sees the connection reset.
		check(connection.(*net.TCPConn).SetLinger(0))
		_, err = connection.Write(frame)
		check(err)
		time.Sleep(200 * time.Microsecond) // the request is there before the connection is gone
		check(connection.Close())
	}
	return map[string]any{"seconds": time.Since(began).Seconds()}
}

// move gives the partition other replicas and measures until all of them are in sync.
func move(ctx context.Context, c *kgo.Client) map[string]any {
	request := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	request.TimeoutMillis = 30_000
	part := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	part.Replicas = nodes()
	wanted := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	wanted.Topic, wanted.Partitions = *topic, []kmsg.AlterPartitionAssignmentsRequestTopicPartition{part}
	request.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{wanted}
	began := time.Now()
	answer, err := request.RequestWith(ctx, c)
	check(err)
	check(kerr.ErrorForCode(answer.ErrorCode))
	check(kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
	for {
		asked := kmsg.NewPtrMetadataRequest()
		name := kmsg.NewMetadataRequestTopic()
		name.Topic = topic
		asked.Topics = []kmsg.MetadataRequestTopic{name}
		known, err := asked.RequestWith(ctx, c)
		check(err)
		if parts := known.Topics[0].Partitions; len(parts) == 1 && len(parts[0].ISR) == len(nodes()) {
			return map[string]any{"seconds": time.Since(began).Seconds()}
		}
		time.Sleep(poll)
	}
}

func main() {
	op := os.Args[1]
	check(flag.CommandLine.Parse(os.Args[2:]))
	measure := map[string]func(context.Context, *kgo.Client) map[string]any{
		"create": create, "delete": deleteTopic, "offsets": offsets,
		"copied": copied, "pace": pace, "cancel": cancel, "move": move,
	}[op]
	if measure == nil {
		check(fmt.Errorf("no measurement %q", op))
	}
	ctx, stop := context.WithTimeout(context.Background(), *patience)
	defer stop()
	c := client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(time.Millisecond), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.UnknownTopicRetries(-1)) // a topic may be younger than what a broker knows
	defer c.Close()
	facts := measure(ctx, c)
	check(ctx.Err())
	check(json.NewEncoder(os.Stdout).Encode(facts))
}
