package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"drawbridge/core"
	"drawbridge/localstack/template"
	"drawbridge/s3queue"
)

const queueHelp = `Usage: go run ./localstack queue import DIR     copy job files into the archive queue
       go run ./localstack queue export DIR     copy them out
       go run ./localstack queue reindex        index documents that were copied into the bucket by hand
       go run ./localstack queue work -- CMD    work on jobs with a command

import, export and reindex speak to S3: that of a hub on this machine, or of
AWS_ENDPOINT_URL. work speaks to a hub. Each has flags of its own (-help).

`

// manageQueue is the command queue.
func manageQueue(ctx context.Context, args []string, t terminal) error {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "import":
		return copyQueue(ctx, name, args, t, importFolder)
	case "export":
		return copyQueue(ctx, name, args, t, exportFolder)
	case "reindex":
		return copyQueue(ctx, name, args, t, nil)
	case "work":
		return work(ctx, args, t)
	case "-h", "-help", "--help":
		fmt.Fprint(t.out, queueHelp)
		return flag.ErrHelp
	}
	return &usageError{fmt.Sprintf("queue %q is not understood: import, export, reindex or work", name)}
}

// A copier copies between a folder and a queue.
type copier func(ctx context.Context, q *s3queue.Queue, dir string) (s3queue.Copied, error)

// copyQueue is import, export and, without a copier, reindex.
func copyQueue(ctx context.Context, name string, args []string, t terminal, copyFolder copier) error {
	flags := flag.NewFlagSet("queue "+name, flag.ContinueOnError)
	rawURL := flags.String("endpoint", "", "`URL` of S3 (default: AWS_ENDPOINT_URL, else the embedded AWS of a hub on this machine)")
	bucket := flags.String("bucket", "", "`name` of the bucket (default: what the template declares)")
	file := flags.String("template", "", "the SAM template `file` (default: template.yaml here or in a folder above)")
	flags.Usage = func() {
		fmt.Fprint(t.out, queueHelp)
		flags.PrintDefaults()
	}
	dir := ""
	if copyFolder != nil && len(args) > 0 && !strings.HasPrefix(args[len(args)-1], "-") {
		dir, args = args[len(args)-1], args[:len(args)-1]
	}
	if err := parseFlags(flags, args, t); err != nil {
		return err
	}
	if copyFolder != nil && dir == "" {
		return &usageError{"queue " + name + " needs a folder"}
	}
	q, err := openQueue(ctx, *rawURL, *bucket, *file, t)
	if err != nil {
		return err
	}
	var copied s3queue.Copied
	if copyFolder != nil {
		copied, err = copyFolder(ctx, q, dir)
	} else {
		copied, err = q.Reindex(ctx)
	}
	tellCopied(t, name, copied)
	if err != nil {
		return err
	}
	if name != "export" {
		retired, err := q.SettleBacklog(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.out, "%d superseded by a later state of their file\n", retired)
	}
	if n := len(copied.Damaged); n > 0 {
		return fmt.Errorf("%d damaged: see above", n)
	}
	return nil
}

func tellCopied(t terminal, name string, c s3queue.Copied) {
	for _, d := range c.Damaged {
		fmt.Fprintf(t.err, "damaged  %s: %s\n", d.Name, d.Reason)
	}
	done := map[string]string{"import": "imported", "export": "exported", "reindex": "indexed"}[name]
	fmt.Fprintf(t.out, "%d %s, %d as they were, %d damaged\n", c.Jobs, done, c.Skipped, len(c.Damaged))
}

// openQueue opens the archive queue of a bucket.
func openQueue(ctx context.Context, rawURL, bucket, file string, t terminal) (*s3queue.Queue, error) {
	e, err := openEndpoint(ctx, cmp.Or(rawURL, t.getenv(endpointVariable), "http://127.0.0.1:4566"), t.getenv)
	if err != nil {
		return nil, err
	}
	if bucket == "" {
		path, err := findTemplate(file)
		if err != nil {
			return nil, err
		}
		declared, err := template.Load(path, template.Local())
		if err != nil {
			return nil, err
		}
		bucket = declared.Buckets[0].Name
	}
	clock := core.SystemClock{}
	return s3queue.New(s3queue.Config{S3: e.s3(), Bucket: bucket, Settings: core.DefaultArchiveSettings(),
		Clock: clock, IDs: core.NewIDs(clock, rand.Reader)}), nil
}

const jobFileSuffix = ".json"

// importFolder copies the job files of a folder. Other files, and folders, are
// not looked at.
func importFolder(ctx context.Context, q *s3queue.Queue, dir string) (s3queue.Copied, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s3queue.Copied{}, fmt.Errorf("read the folder of job files: %w", err)
	}
	var unreadable error
	copied, err := q.Import(ctx, func(yield func(string, []byte) bool) {
		for _, e := range entries {
			if e.IsDir() || filepath.Ext(e.Name()) != jobFileSuffix {
				continue
			}
			document, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				unreadable = errors.Join(unreadable, fmt.Errorf("read a job file: %w", err))
				continue
			}
			if !yield(e.Name(), document) {
				return
			}
		}
	})
	return copied, errors.Join(err, unreadable)
}

// exportFolder writes every job to a file. A file that is there already is
// replaced whole or not at all.
func exportFolder(ctx context.Context, q *s3queue.Queue, dir string) (s3queue.Copied, error) {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return s3queue.Copied{}, fmt.Errorf("make the folder for job files: %w", err)
	}
	return q.Export(ctx, func(name string, document []byte) error {
		return replaceFile(filepath.Join(dir, name), document)
	})
}

func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".job-*")
	if err != nil {
		return fmt.Errorf("write a job file: %w", err)
	}
	defer os.Remove(f.Name()) // gone after the rename
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write a job file: %w", err)
	}
	return nil
}

// findHubToken is the token of the environment or of a hub's data folder; it
// makes none.
func findHubToken(folder string, getenv func(string) string) (string, error) {
	if value := getenv(tokenVariable); value != "" {
		return value, nil
	}
	value, err := tokenIn(filepath.Join(folder, tokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no token: set %s, or name the data folder of the hub with -data", tokenVariable)
	}
	return value, err
}
