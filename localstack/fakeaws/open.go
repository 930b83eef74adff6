package fakeaws

import (
	"errors"
	"fmt"
	"time"

	"drawbridge/localstack/fakeaws/disk"
	"drawbridge/localstack/fakeaws/dynamo"
	"drawbridge/localstack/fakeaws/engine"
	"drawbridge/localstack/fakeaws/objects"
)

// Open starts an embedded AWS. With a data folder it refuses one that another
// process uses or that a newer format wrote; the cost is reading every record.
func Open(o Options) (*Server, error) {
	if err := o.keys(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	var journal engine.Journal
	var onDisk *disk.Journal
	if o.Dir != "" {
		var err error
		if onDisk, err = disk.Open(o.Dir); err != nil {
			return nil, fmt.Errorf("open the data folder: %w", err)
		}
		journal = onDisk
	}
	s, err := openEngines(o, journal)
	if err != nil {
		if onDisk != nil {
			err = errors.Join(err, onDisk.Close())
		}
		return nil, err
	}
	s.journal = onDisk
	return s, nil
}

func openEngines(o Options, journal engine.Journal) (*Server, error) {
	tables, err := dynamo.Open(dynamo.Options{Journal: journal, Clock: o.Clock})
	if err != nil {
		return nil, fmt.Errorf("open the tables: %w", err)
	}
	buckets, err := objects.Open(objects.Options{Journal: journal, Clock: o.Clock})
	if err != nil {
		return nil, fmt.Errorf("open the buckets: %w", err)
	}
	s := newServer(o, tables, buckets)
	s.tables, s.buckets = tables, buckets
	s.script.bind(tables)
	return s, nil
}
