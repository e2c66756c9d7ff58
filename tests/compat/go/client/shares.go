// Members of share groups: share_open, share_poll, share_commit, share_close.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type shareMember struct {
	client *kgo.Client
	polled map[int64]*kgo.Record
	mutex  sync.Mutex
	errors []string
}

var shareMembers = map[string]*shareMember{}

var ackTypes = map[string]kgo.AckStatus{
	"ACCEPT": kgo.AckAccept, "RELEASE": kgo.AckRelease, "REJECT": kgo.AckReject, "RENEW": kgo.AckRenew,
}

func openShare(q request) error {
	m := &shareMember{polled: map[int64]*kgo.Record{}}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(q.Bootstrap, ",")...), kgo.ShareGroup(q.Group),
		kgo.ConsumeTopics(q.Topic), kgo.ShareAckCallback(m.acknowledged))
	m.client = client
	shareMembers[q.Member] = m
	return err
}

func (m *shareMember) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, one := range results {
		if one.Err != nil {
			m.errors = append(m.errors, one.Err.Error())
		}
	}
}

// The first records that come, as [offset, value, deliveries]; none after the time is up.
func (m *shareMember) poll(ctx context.Context, q request) answer {
	bounded, cancel := context.WithTimeout(ctx, time.Duration(q.WaitMs)*time.Millisecond)
	defer cancel()
	m.polled = map[int64]*kgo.Record{}
	records := [][3]any{}
	for len(records) == 0 && bounded.Err() == nil {
		for _, r := range m.client.PollRecords(bounded, 500).Records() {
			m.polled[r.Offset] = r
			records = append(records, [3]any{r.Offset, string(r.Value), r.DeliveryCount()})
		}
	}
	return answer{"records": records}
}

// Acknowledge polled records by [offset, type], all of them if none is named; the errors.
func (m *shareMember) commit(ctx context.Context, q request) (answer, error) {
	for _, one := range q.Marks {
		offset, kind := int64(one[0].(float64)), one[1].(string)
		if m.polled[offset] == nil {
			return nil, fmt.Errorf("record %d is not held", offset)
		}
		m.polled[offset].Ack(ackTypes[kind])
	}
	if len(q.Marks) == 0 {
		m.client.MarkAcks(kgo.AckAccept)
	}
	err := m.client.FlushAcks(ctx)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	failed := append([]string{}, m.errors...)
	m.errors = nil
	return answer{"errors": failed}, err
}

func share(ctx context.Context, q request) (answer, error) {
	if q.Op == "share_open" {
		return answer{}, openShare(q)
	}
	m := shareMembers[q.Member]
	switch q.Op {
	case "share_poll":
		return m.poll(ctx, q), nil
	case "share_commit":
		return m.commit(ctx, q)
	default:
		m.client.Close()
		delete(shareMembers, q.Member)
		return answer{}, nil
	}
}
