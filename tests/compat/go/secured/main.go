// franz-go with the configuration that client_config("franz-go") has: writes a record and reads it.
//
// Standard input is {"config": ..., "topic": ...}; the last line of the output is the value or the error.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type config struct {
	Seeds []string `json:"seeds"`
	TLS   *struct {
		CA   string `json:"ca"`
		Cert string `json:"cert"`
		Key  string `json:"key"`
	} `json:"tls"`
	SASL *struct {
		Mechanism string `json:"mechanism"`
		User      string `json:"user"`
		Pass      string `json:"pass"`
		Token     string `json:"token"`
	} `json:"sasl"`
}

func options(c config) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(c.Seeds...)}
	if c.TLS != nil {
		pem, err := os.ReadFile(c.TLS.CA)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		secured := &tls.Config{RootCAs: roots}
		if c.TLS.Cert != "" {
			own, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
			if err != nil {
				return nil, err
			}
			secured.Certificates = []tls.Certificate{own}
		}
		opts = append(opts, kgo.DialTLSConfig(secured))
	}
	if c.SASL != nil {
		s := c.SASL
		mechanisms := map[string]sasl.Mechanism{
			"PLAIN":         plain.Auth{User: s.User, Pass: s.Pass}.AsMechanism(),
			"SCRAM-SHA-256": scram.Auth{User: s.User, Pass: s.Pass}.AsSha256Mechanism(),
			"SCRAM-SHA-512": scram.Auth{User: s.User, Pass: s.Pass}.AsSha512Mechanism(),
			"OAUTHBEARER":   oauth.Auth{Token: s.Token}.AsMechanism(),
		}
		opts = append(opts, kgo.SASL(mechanisms[s.Mechanism]))
	}
	return opts, nil
}

func written(c config, topic string) (string, error) {
	opts, err := options(c)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := kgo.NewClient(append(opts, kgo.ConsumeTopics(topic), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return "", err
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("franz-go")}).FirstErr(); err != nil {
		return "", err
	}
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err0(); err != nil {
		return "", err
	}
	return string(fetches.Records()[0].Value), nil
}

func main() {
	var given struct {
		Config config `json:"config"`
		Topic  string `json:"topic"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		fmt.Println("error:", err)
		return
	}
	value, err := written(given.Config, given.Topic)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println(value)
}
