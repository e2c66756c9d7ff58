package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions every peer serves that still name topics, so that one frame fits all brokers.
const (
	produceVersion = 9
	fetchVersion   = 12
)

// oneRecord is a batch of a single record without key, headers or producer id.
func oneRecord(value []byte) []byte {
	record := kmsg.Record{Value: value}
	body := record.AppendTo(nil)[1:] // its length, one zero byte so far, comes before the rest
	prefix := binary.AppendVarint(nil, int64(len(body)))
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: 1, Records: append(prefix, body...),
	}
	batch.Length = int32(49 + len(batch.Records))
	data := batch.AppendTo(nil)
	crc := crc32.Checksum(data[21:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(data[17:], crc)
	return data
}

// requestFrame is the whole frame of a request of one partition; correlation id 1.
func requestFrame(api, topic string, value []byte) []byte {
	var request kmsg.Request
	if api == "produce" {
		produce := kmsg.NewPtrProduceRequest()
		produce.Acks, produce.TimeoutMillis = -1, 10_000
		part := kmsg.NewProduceRequestTopicPartition()
		part.Records = oneRecord(value)
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{part}
		produce.Topics = []kmsg.ProduceRequestTopic{t}
		produce.SetVersion(produceVersion)
		request = produce
	} else {
		fetch := kmsg.NewPtrFetchRequest()
		fetch.ReplicaID, fetch.MaxWaitMillis, fetch.MinBytes = -1, 10_000, 1
		fetch.MaxBytes, fetch.SessionID, fetch.SessionEpoch = 1<<20, 0, -1
		part := kmsg.NewFetchRequestTopicPartition()
		part.PartitionMaxBytes, part.CurrentLeaderEpoch = 1, -1 // the first batch alone
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.Partitions = topic, []kmsg.FetchRequestTopicPartition{part}
		fetch.Topics = []kmsg.FetchRequestTopic{t}
		fetch.SetVersion(fetchVersion)
		request = fetch
	}
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, 1)
}

type rawConnection struct {
	net.Conn
	reader *bufio.Reader
}

func dial(address string) *rawConnection {
	var c net.Conn
	var err error
	if *authority == "" {
		c, err = net.Dial("tcp", address)
	} else {
		c, err = tls.Dial("tcp", address, trusting())
	}
	check(err)
	return &rawConnection{c, bufio.NewReaderSize(c, 1<<16)}
}

// run sends a frame count times, at most depth of them unanswered, and checks each answer.
func (c *rawConnection) run(frame []byte, api string, count, depth int) {
	window := make(chan struct{}, depth)
	go func() {
		for i := 0; i < count; i++ {
			window <- struct{}{}
			if _, err := c.Write(frame); err != nil {
				check(err)
			}
		}
	}()
	var head [4]byte
	body := make([]byte, 1<<16)
	for i := 0; i < count; i++ {
		_, err := io.ReadFull(c.reader, head[:])
		check(err)
		size := binary.BigEndian.Uint32(head[:])
		if int(size) > len(body) {
			body = make([]byte, size)
		}
		_, err = io.ReadFull(c.reader, body[:size])
		check(err)
		if i == 0 {
			check(refused(api, body[:size]))
		}
		<-window
	}
}

// refused reads the error code of the one partition.
func refused(api string, body []byte) error {
	body = body[5:] // correlation id, no tags
	var code int16
	if api == "produce" {
		answer := kmsg.NewPtrProduceResponse()
		answer.SetVersion(produceVersion)
		if err := answer.ReadFrom(body); err != nil {
			return err
		}
		code = answer.Topics[0].Partitions[0].ErrorCode
	} else {
		answer := kmsg.NewPtrFetchResponse()
		answer.SetVersion(fetchVersion)
		if err := answer.ReadFrom(body); err != nil {
			return err
		}
		code = answer.Topics[0].Partitions[0].ErrorCode
		if len(answer.Topics[0].Partitions[0].RecordBatches) == 0 {
			return fmt.Errorf("nothing to fetch")
		}
	}
	if code != 0 {
		return fmt.Errorf("error code %d", code)
	}
	return nil
}
