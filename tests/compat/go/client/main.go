// franz-go behind the JSON line protocol of tests/compat/clients/protocol.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 30 * time.Second

type record struct {
	Partition *int32   `json:"partition,omitempty"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp,omitempty"`
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   [][2]any `json:"headers"`
}

type request struct {
	Op               string             `json:"op"`
	Bootstrap        string             `json:"bootstrap"`
	Topic            string             `json:"topic"`
	Partition        int32              `json:"partition"`
	Partitions       int32              `json:"partitions"`
	Records          []record           `json:"records"`
	Codec            string             `json:"codec"`
	Acks             string             `json:"acks"`
	Idempotent       bool               `json:"idempotent"`
	From             json.RawMessage    `json:"from"`
	At               json.RawMessage    `json:"at"`
	Count            int                `json:"count"`
	Member           string             `json:"member"`
	Group            string             `json:"group"`
	Instance         string             `json:"instance"`
	SessionTimeoutMs int                `json:"session_timeout_ms"`
	Protocol         string             `json:"protocol"`
	Before           int64              `json:"before"`
	Configs          map[string]*string `json:"configs"`
	Committed        bool               `json:"committed"`
	Producer         string             `json:"producer"`
	TransactionalID  string             `json:"transactional_id"`
	TimeoutMs        int                `json:"timeout_ms"`
	To               string             `json:"to"`
	Begin            bool               `json:"begin"`
	Commit           bool               `json:"commit"`
	WaitMs           int                `json:"wait_ms"`
	Marks            [][2]any           `json:"marks"`
}

type answer map[string]any

func optional(data []byte) *[]byte {
	if data == nil {
		return nil
	}
	return &data
}

func shown(r *kgo.Record) record {
	partition, timestamp := r.Partition, r.Timestamp.UnixMilli()
	out := record{Partition: &partition, Offset: r.Offset, Timestamp: &timestamp,
		Key: optional(r.Key), Value: optional(r.Value), Headers: [][2]any{}}
	for _, h := range r.Headers {
		if h.Value == nil {
			out.Headers = append(out.Headers, [2]any{h.Key, nil})
		} else {
			out.Headers = append(out.Headers, [2]any{h.Key, h.Value})
		}
	}
	return out
}

func toSend(topic string, in record) (*kgo.Record, error) {
	r := &kgo.Record{Topic: topic}
	if in.Partition != nil {
		r.Partition = *in.Partition
	}
	if in.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*in.Timestamp)
	}
	if in.Key != nil {
		r.Key = *in.Key
	}
	if in.Value != nil {
		r.Value = *in.Value
	}
	for _, pair := range in.Headers {
		h := kgo.RecordHeader{Key: pair[0].(string)}
		if pair[1] != nil {
			quoted, _ := json.Marshal(pair[1])
			if err := json.Unmarshal(quoted, &h.Value); err != nil {
				return nil, err
			}
		}
		r.Headers = append(r.Headers, h)
	}
	return r, nil
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func produce(ctx context.Context, q request) (answer, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...), kgo.RequiredAcks(acks[q.Acks]),
		kgo.ProducerBatchCompression(codecs[q.Codec]), kgo.ProducerBatchMaxBytes(1_900_000),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProduceRequestTimeout(10 * time.Second),
		kgo.AllowAutoTopicCreation(),
	}
	if !q.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(q.Records))
	for _, in := range q.Records {
		r, err := toSend(q.Topic, in)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	byRecord := map[*kgo.Record][2]int64{}
	for _, result := range results {
		byRecord[result.Record] = [2]int64{int64(result.Record.Partition), result.Record.Offset}
	}
	offsets := [][2]int64{}
	for _, r := range records {
		offsets = append(offsets, byRecord[r])
	}
	return answer{"offsets": offsets}, nil
}

func consume(ctx context.Context, q request) (answer, error) {
	offset := kgo.NewOffset().AtStart()
	if from, err := strconv.ParseInt(string(q.From), 10, 64); err == nil {
		offset = kgo.NewOffset().At(from)
	}
	isolation := kgo.ReadUncommitted()
	if q.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{q.Topic: {q.Partition: offset}}), kgo.FetchIsolationLevel(isolation))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []record{}
	for len(records) < q.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, shown(r)) })
	}
	return answer{"records": records}, nil
}

type member struct {
	client   *kgo.Client
	mutex    sync.Mutex
	records  []record
	assigned map[int32]bool
	done     chan struct{}
}

func join(q request) (*member, error) {
	m := &member{assigned: map[int32]bool{}, done: make(chan struct{}), records: []record{}}
	change := func(have bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, partition := range topics[q.Topic] {
				if have {
					m.assigned[partition] = true
				} else {
					delete(m.assigned, partition)
				}
			}
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...), kgo.ConsumerGroup(q.Group), kgo.ConsumeTopics(q.Topic),
		kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)),
	}
	if q.Protocol == "consumer" {
		// A heartbeat that cannot connect does not forget the coordinator (1.22.2: consumer_group_848.go,
		// heartbeat). A member looks for another one only when metadata no longer lists that broker, and
		// only failed fetches ask for metadata before its age: a member whose leaders live stays silent.
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
			kgo.MetadataMinAge(250*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	} else {
		options = append(options,
			kgo.SessionTimeout(time.Duration(q.SessionTimeoutMs)*time.Millisecond),
			kgo.HeartbeatInterval(200*time.Millisecond))
	}
	if q.Instance != "" {
		options = append(options, kgo.InstanceID(q.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	m.client = client
	go m.poll()
	return m, nil
}

func (m *member) poll() {
	defer close(m.done)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.mutex.Lock()
		fetches.EachRecord(func(r *kgo.Record) { m.records = append(m.records, shown(r)) })
		m.mutex.Unlock()
	}
}

func (m *member) partitions() []int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	partitions := []int{}
	for partition := range m.assigned {
		partitions = append(partitions, int(partition))
	}
	sort.Ints(partitions)
	return partitions
}

func (m *member) consumed() []record {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return append([]record{}, m.records...)
}

var members = map[string]*member{}

func serve(ctx context.Context, q request) (answer, error) {
	switch q.Op {
	case "produce":
		return produce(ctx, q)
	case "consume":
		return consume(ctx, q)
	case "join":
		m, err := join(q)
		members[q.Member] = m
		return answer{}, err
	case "assignment":
		return answer{"partitions": members[q.Member].partitions()}, nil
	case "consumed":
		return answer{"records": members[q.Member].consumed()}, nil
	case "commit":
		return answer{}, members[q.Member].client.CommitUncommittedOffsets(ctx)
	case "leave":
		members[q.Member].client.Close()
		<-members[q.Member].done
		delete(members, q.Member)
		return answer{}, nil
	case "txn_open", "txn_send", "txn_end", "txn_close":
		return answer{}, transact(ctx, q)
	case "copy":
		return copyInTransaction(ctx, q)
	case "share_open", "share_poll", "share_commit", "share_close":
		return share(ctx, q)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return administer(ctx, kadm.NewClient(client), q)
}

func administer(ctx context.Context, admin *kadm.Client, q request) (answer, error) {
	switch q.Op {
	case "create_topic":
		made, err := admin.CreateTopic(ctx, q.Partitions, 1, q.Configs, q.Topic)
		return answer{}, errors.Join(err, made.Err)
	case "delete_topic":
		gone, err := admin.DeleteTopic(ctx, q.Topic)
		return answer{}, errors.Join(err, gone.Err)
	case "topics":
		topics, err := admin.ListTopics(ctx)
		return answer{"topics": topics.Names()}, err
	case "describe_topic":
		topics, err := admin.ListTopics(ctx, q.Topic)
		if err != nil {
			return nil, err
		}
		topic := topics[q.Topic]
		if topic.Err != nil {
			return nil, topic.Err
		}
		return answer{"partitions": len(topic.Partitions), "leader": topic.Partitions[0].Leader}, nil
	case "delete_records":
		before := kadm.Offsets{}
		before.Add(kadm.Offset{Topic: q.Topic, Partition: q.Partition, At: q.Before})
		deleted, err := admin.DeleteRecords(ctx, before)
		if err != nil {
			return nil, err
		}
		result, _ := deleted.Lookup(q.Topic, q.Partition)
		return answer{"low_watermark": result.LowWatermark}, result.Err
	case "committed":
		offsets, err := admin.FetchOffsets(ctx, q.Group)
		if err != nil {
			return nil, err
		}
		if offset, found := offsets.Lookup(q.Topic, q.Partition); found {
			return answer{"offset": offset.At}, nil
		}
		return answer{"offset": -1}, nil
	case "offsets":
		return offsets(ctx, admin, q)
	}
	return nil, fmt.Errorf("unknown op %q", q.Op)
}

func offsets(ctx context.Context, admin *kadm.Client, q request) (answer, error) {
	var listed kadm.ListedOffsets
	var err error
	switch string(q.At) {
	case `"earliest"`:
		listed, err = admin.ListStartOffsets(ctx, q.Topic)
	case `"latest"`:
		listed, err = admin.ListEndOffsets(ctx, q.Topic)
	default:
		var millis int64
		if millis, err = strconv.ParseInt(string(q.At), 10, 64); err == nil {
			listed, err = admin.ListOffsetsAfterMilli(ctx, millis, q.Topic)
		}
	}
	if err != nil {
		return nil, err
	}
	offset, _ := listed.Lookup(q.Topic, q.Partition)
	return answer{"offset": offset.Offset}, offset.Err
}

func describe(err error) string {
	var kafkaError *kerr.Error
	if errors.As(err, &kafkaError) {
		return kafkaError.Message + ": " + err.Error()
	}
	return err.Error()
}

func main() {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		var a answer
		if err = json.Unmarshal(line, &q); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			a, err = serve(ctx, q)
			cancel()
		}
		if err != nil {
			a = answer{"error": describe(err)}
		}
		if err := output.Encode(a); err != nil {
			return
		}
	}
}
