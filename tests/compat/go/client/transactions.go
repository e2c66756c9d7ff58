package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactional producers by name.
var producers = map[string]*kgo.Client{}

func transactional(q request, more ...kgo.Opt) []kgo.Opt {
	if q.TimeoutMs == 0 {
		q.TimeoutMs = 60_000
	}
	return append(more, kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...),
		kgo.TransactionalID(q.TransactionalID),
		kgo.TransactionTimeout(time.Duration(q.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func transact(ctx context.Context, q request) error {
	client := producers[q.Producer]
	switch q.Op {
	case "txn_open":
		made, err := kgo.NewClient(transactional(q)...)
		if err != nil {
			return err
		}
		producers[q.Producer] = made
		_, _, err = made.ProducerID(ctx) // initialises
		return err
	case "txn_send":
		if q.Begin {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
		}
		records := []*kgo.Record{}
		for _, in := range q.Records {
			r, err := toSend(q.Topic, in)
			if err != nil {
				return err
			}
			records = append(records, r)
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	case "txn_end":
		return errors.Join(client.Flush(ctx), client.EndTransaction(ctx, kgo.TransactionEndTry(q.Commit)))
	}
	client.Close()
	delete(producers, q.Producer)
	return nil
}

func copyInTransaction(ctx context.Context, q request) (answer, error) {
	session, err := kgo.NewGroupTransactSession(transactional(q,
		kgo.ConsumerGroup(q.Group), kgo.ConsumeTopics(q.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return nil, err
	}
	copied := 0
	for copied < q.Count {
		fetches := session.PollRecords(ctx, q.Count-copied)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			session.Produce(ctx, &kgo.Record{Topic: q.To, Value: r.Value}, nil)
			copied++
		}
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(q.Commit))
	if err == nil && committed != q.Commit {
		err = fmt.Errorf("committed: %v", committed)
	}
	return answer{"copied": copied}, err
}
