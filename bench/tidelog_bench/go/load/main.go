// One measurement with franz-go against one broker, its result one JSON object on standard output:
// load create|delete|produce|consume|roundtrip|requests -bootstrap HOST:PORT -topic NAME ...
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap   = flag.String("bootstrap", "", "addresses of the brokers, with commas")
	authority   = flag.String("authority", "", "file of the certificate to trust; the connections have TLS")
	topic       = flag.String("topic", "", "existing topic")
	count       = flag.Int("count", 0, "records or requests")
	size        = flag.Int("size", 100, "bytes of a record's value")
	rate        = flag.Int("rate", 500, "records a second of a round trip")
	batchBytes  = flag.Int("batch-bytes", 0, "of a batch; 0 leaves the client's default")
	linger      = flag.Duration("linger", -1, "of the producer; negative leaves the client's default")
	connections = flag.Int("connections", 1, "of raw requests")
	depth       = flag.Int("depth", 5, "raw requests in flight on a connection")
	partitions  = flag.Int("partitions", 1, "of the topic")
	replicas    = flag.Int("replicas", 1, "of each partition of a new topic")
	api         = flag.String("api", "produce", "of raw requests: produce or fetch")
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	if *authority != "" {
		options = append(options, kgo.DialTLSConfig(trusting()))
	}
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(*bootstrap, ",")...))...)
	check(err)
	return c
}

func trusting() *tls.Config {
	certificate, err := os.ReadFile(*authority)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	return &tls.Config{RootCAs: trusted}
}

func value() []byte {
	data := make([]byte, *size)
	rand.New(rand.NewSource(1)).Read(data)
	return data
}

func producer() *kgo.Client {
	options := []kgo.Opt{
		kgo.DefaultProduceTopic(*topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(50_000),
	}
	if *batchBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(int32(*batchBytes)))
	}
	if *linger >= 0 {
		options = append(options, kgo.ProducerLinger(*linger))
	}
	return client(options...)
}

func produce() map[string]any {
	c := producer()
	defer c.Close()
	check(c.ProduceSync(context.Background(), &kgo.Record{Value: value()}).FirstErr())
	data := value()
	var failed atomic.Value
	started := time.Now()
	for i := 0; i < *count; i++ {
		c.Produce(context.Background(), &kgo.Record{Value: data}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(err)
			}
		})
	}
	check(c.Flush(context.Background()))
	seconds := time.Since(started).Seconds()
	if err := failed.Load(); err != nil {
		check(err.(error))
	}
	return map[string]any{"seconds": seconds, "records": *count}
}

func partitionsFrom(offset kgo.Offset) kgo.Opt {
	starts := map[int32]kgo.Offset{}
	for p := 0; p < *partitions; p++ {
		starts[int32(p)] = offset
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: starts})
}

func consume() map[string]any {
	c := client(partitionsFrom(kgo.NewOffset().AtStart()))
	defer c.Close()
	records := 0
	var started time.Time
	first := 0
	for records < *count {
		fetches := c.PollFetches(context.Background())
		check(fetches.Err())
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { records += len(p.Records) })
		if first == 0 { // connecting and listing offsets is not what is measured
			started, first = time.Now(), records
		}
	}
	seconds := time.Since(started).Seconds()
	return map[string]any{"seconds": seconds, "records": records - first}
}

// roundTrip sends at a steady rate and measures from before Produce until a consumer, polling at
// the log's end, has the record.
func roundTrip() map[string]any {
	consumer := client(partitionsFrom(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(5*time.Second))
	defer consumer.Close()
	*linger = 0
	p := producer()
	defer p.Close()
	start := time.Now()
	var times []time.Duration
	done := make(chan struct{})
	warm := *count / 10
	go func() {
		defer close(done)
		for len(times) < *count {
			fetches := consumer.PollFetches(context.Background())
			check(fetches.Err())
			now := time.Since(start)
			fetches.EachRecord(func(r *kgo.Record) {
				if sent := int64(binary.BigEndian.Uint64(r.Value)); sent > 0 {
					times = append(times, now-time.Duration(sent))
				}
			})
		}
	}()
	settle := make([]byte, *size)
	for i := 0; i < 20; i++ { // the consumer finds the end, both have their connections
		check(p.ProduceSync(context.Background(), &kgo.Record{Value: settle}).FirstErr())
		time.Sleep(10 * time.Millisecond)
	}
	tick := time.NewTicker(time.Second / time.Duration(*rate))
	defer tick.Stop()
	for i := 0; i < *count; i++ {
		<-tick.C
		data := make([]byte, *size)
		binary.BigEndian.PutUint64(data, uint64(time.Since(start)))
		p.Produce(context.Background(), &kgo.Record{Value: data}, func(_ *kgo.Record, err error) {
			check(err)
		})
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		check(fmt.Errorf("records are missing"))
	}
	check(p.Flush(context.Background())) // a record may be here before its acknowledgement is
	times = times[warm:]
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Nanoseconds()) / 1e3
	}
	return map[string]any{"records": len(times), "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99)}
}

func requests() map[string]any {
	frame := requestFrame(*api, *topic, value())
	var group sync.WaitGroup
	each := *count / *connections
	warm := make([]*rawConnection, *connections)
	for i := range warm {
		warm[i] = dial(*bootstrap)
		warm[i].run(frame, *api, each/10+1, *depth)
	}
	started := time.Now()
	for _, c := range warm {
		group.Add(1)
		go func() {
			defer group.Done()
			c.run(frame, *api, each, *depth)
		}()
	}
	group.Wait()
	seconds := time.Since(started).Seconds()
	return map[string]any{"seconds": seconds, "requests": each * *connections, "sent": (each + each/10 + 1) * *connections}
}

func main() {
	op := os.Args[1]
	check(flag.CommandLine.Parse(os.Args[2:]))
	measure := map[string]func() map[string]any{
		"create": createTopic, "delete": deleteTopic,
		"produce": produce, "consume": consume, "roundtrip": roundTrip, "requests": requests,
	}[op]
	if measure == nil {
		check(fmt.Errorf("no measurement %q", op))
	}
	check(json.NewEncoder(os.Stdout).Encode(measure()))
}
