// franz-go as the load program that tests/compat/chaos/load.py describes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	valueBytes    = 200
	unansweredMax = 2000
	tick          = 5 * time.Millisecond
)

type request struct {
	Op         string `json:"op"`
	Bootstrap  string `json:"bootstrap"`
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	Producer   string `json:"producer"`
	Rate       int    `json:"rate"`
	Reader     string `json:"reader"`
	Records    int    `json:"records"`
	TimeoutMs  int    `json:"timeout_ms"`
	File       string `json:"file"`
}

type answer map[string]any

// The monotonic clock that all programs of a run share.
func now() int64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

type producing struct {
	sync.Mutex
	client     *kgo.Client
	lines      []string
	counts     []int
	failed     []string
	unanswered int
	stop       chan struct{}
	stopped    chan struct{}
}

func start(q request) (*producing, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(tick),
		kgo.RecordDeliveryTimeout(2*time.Minute), kgo.ProduceRequestTimeout(10*time.Second),
		kgo.RetryTimeout(2*time.Minute),
	)
	if err != nil {
		return nil, err
	}
	p := &producing{client: client, counts: make([]int, q.Partitions), failed: []string{},
		stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.run(q)
	return p, nil
}

// Numbers every partition's records, round robin, at a steady rate.
func (p *producing) run(q request) {
	defer close(p.stopped)
	allowed := 0.0
	for sent := 0; ; {
		allowed = min(allowed+float64(q.Rate)*tick.Seconds(), unansweredMax)
		for ; allowed >= 1 && p.waiting() < unansweredMax; allowed-- {
			p.send(q, sent%q.Partitions, sent/q.Partitions)
			sent++
		}
		select {
		case <-p.stop:
			return
		case <-time.After(tick):
		}
	}
}

func (p *producing) waiting() int {
	p.Lock()
	defer p.Unlock()
	return p.unanswered
}

func (p *producing) send(q request, partition, number int) {
	head := fmt.Sprintf("%s %d %d ", q.Producer, partition, number)
	value := head + strings.Repeat(".", valueBytes-len(head))
	r := &kgo.Record{Topic: q.Topic, Partition: int32(partition), Value: []byte(value)}
	p.Lock()
	p.unanswered++
	p.Unlock()
	asked := now()
	p.client.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		p.Lock()
		defer p.Unlock()
		p.unanswered--
		if err != nil {
			p.failed = append(p.failed, err.Error())
			return
		}
		line := fmt.Sprintf("%d %d %d %d %d", partition, number, r.Offset, asked, now())
		p.lines = append(p.lines, line)
		p.counts[partition]++
	})
}

func (p *producing) finish(q request) (answer, error) {
	close(p.stop)
	<-p.stopped
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(q.TimeoutMs)*time.Millisecond)
	defer cancel()
	_ = p.client.Flush(ctx) // what is left is counted below
	p.Lock()
	defer p.Unlock()
	err := write(q.File, p.lines)
	return answer{"acknowledged": len(p.lines), "left": p.unanswered, "failed": p.failed}, err
}

type following struct {
	sync.Mutex
	lines  []string
	failed []string
	cancel context.CancelFunc
	ended  chan struct{}
}

// A consumer of all partitions from their beginning that goes on over all faults.
func follow(q request) (*following, error) {
	offsets := map[int32]kgo.Offset{}
	for partition := range q.Partitions {
		offsets[int32(partition)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{q.Topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{cancel: cancel, ended: make(chan struct{}), failed: []string{}}
	go func() {
		defer close(f.ended)
		defer client.Close()
		for ctx.Err() == nil {
			asked := now()
			fetches := client.PollFetches(ctx)
			f.take(fetches, asked, now())
		}
	}()
	return f, nil
}

func (f *following) take(fetches kgo.Fetches, asked, answered int64) {
	f.Lock()
	defer f.Unlock()
	for _, bad := range fetches.Errors() {
		var lost *kgo.ErrDataLoss
		if errors.As(bad.Err, &lost) {
			f.failed = append(f.failed, bad.Err.Error())
		}
	}
	fetches.EachRecord(func(r *kgo.Record) {
		words := strings.Fields(string(r.Value))
		line := fmt.Sprintf("%d %d %d %d %s", r.Partition, r.Offset, asked, answered, strings.Join(words[:3], " "))
		f.lines = append(f.lines, line)
	})
}

func (f *following) followed(q request) (answer, error) {
	for end := time.Now().Add(time.Duration(q.TimeoutMs) * time.Millisecond); time.Now().Before(end); {
		f.Lock()
		enough := len(f.lines) >= q.Records
		f.Unlock()
		if enough {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.cancel()
	<-f.ended
	err := write(q.File, f.lines)
	return answer{"records": len(f.lines), "failed": f.failed}, err
}

func write(path string, lines []string) error {
	text := strings.Join(lines, "\n")
	if text != "" {
		text += "\n"
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

var (
	producer *producing
	readers  = map[string]*following{}
)

func serve(q request) (a answer, err error) {
	switch q.Op {
	case "start":
		producer, err = start(q)
		return answer{}, err
	case "count":
		producer.Lock()
		defer producer.Unlock()
		counts := append([]int{}, producer.counts...)
		return answer{"each": counts, "failed": append([]string{}, producer.failed...)}, nil
	case "finish":
		return producer.finish(q)
	case "follow":
		readers[q.Reader], err = follow(q)
		return answer{}, err
	case "followed":
		return readers[q.Reader].followed(q)
	}
	return nil, fmt.Errorf("unknown op %q", q.Op)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var q request
		var a answer
		err := json.Unmarshal(lines.Bytes(), &q)
		if err == nil {
			a, err = serve(q)
		}
		if err != nil {
			a = answer{"error": err.Error()}
		}
		text, _ := json.Marshal(a)
		fmt.Println(string(text))
	}
}
