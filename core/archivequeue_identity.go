package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// The first field of what is hashed, so that neither hash can be mistaken for
// the other or for one of a later version.
const (
	archiveJobHash    = "drawbridge.archive-job.v1"
	archiveSourceHash = "drawbridge.archive-source.v1"
)

// ArchiveJobIDLength is the length of a job's id in characters.
const ArchiveJobIDLength = 2 * sha256.Size

// JobID is the id of the job that archives the observation: the lower-case hex
// SHA-256 of the netstrings (decimal length in bytes, ":", bytes, ",") of
//
//	"drawbridge.archive-job.v1", agent, source path,
//	source bytes in decimal, source modification time in decimal epoch milliseconds
//
// A netstring tells where it ends, so no two different tuples are hashed alike.
func (o ArchiveObservation) JobID() string {
	return hashFields(archiveJobHash, o.Agent, o.SourcePath,
		strconv.FormatInt(o.SourceBytes, 10), strconv.FormatInt(int64(o.SourceModifiedAt), 10))
}

// SourceID names the observed file: the hash, made as in JobID, of
// "drawbridge.archive-source.v1", agent and source path.
func (o ArchiveObservation) SourceID() string {
	return hashFields(archiveSourceHash, o.Agent, o.SourcePath)
}

func hashFields(fields ...string) string {
	h := sha256.New()
	for _, f := range fields {
		h.Write([]byte(strconv.Itoa(len(f)) + ":" + f + ","))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// IsArchiveJobID tells whether s has the form of a job's id.
func IsArchiveJobID(s string) bool {
	if len(s) != ArchiveJobIDLength {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// compareObservations orders the observations of one source: the later
// modification first decides, because compaction makes a later transcript
// smaller, then the size, then the id.
func compareObservations(a, b ArchiveJob) int {
	return cmp.Or(
		cmp.Compare(a.SourceModifiedAt, b.SourceModifiedAt),
		cmp.Compare(a.SourceBytes, b.SourceBytes),
		cmp.Compare(a.ID, b.ID),
	)
}

// ObservedBefore tells whether the job's observation is strictly earlier than
// o's. Both must be of the same source.
func (j ArchiveJob) ObservedBefore(o ArchiveJob) bool { return compareObservations(j, o) < 0 }

// CoveredBy tells whether a worker that read the snapshot has archived
// everything the job's observation would have: it is older, or equal in time
// and not larger.
func (j ArchiveJob) CoveredBy(s ArchiveSnapshot) bool {
	return cmp.Or(
		cmp.Compare(j.SourceModifiedAt, s.ModifiedAt),
		cmp.Compare(j.SourceBytes, s.Bytes),
	) <= 0
}
