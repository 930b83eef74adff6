// Package disk is the embedded AWS's durable journal: an engine.Journal in a
// folder, a write-ahead log before a bbolt file.
//
// # Guarantees
//
// A ticket that Wait lets through is on stable storage: it survives the kill
// of the process at any instant and the loss of power (every group is synced
// before). The writes of one Append are all there after a crash or none, and
// the state found is one that the sequence of Append calls went through.
// One process holds the folder at a time; the kernel's file lock says so and
// ends with the process. When a write fails (disk full, I/O error), the
// journal is poisoned: that ticket and every later one fail, so nothing is
// acknowledged that might not be there. What is damaged is an error
// (ErrDamaged) where that is met, and ends no process: a data file that lost
// its end or whose pages were overwritten, a log that is gone, an entry of a
// log that is not the last one. Entries of logs have checksums; pages of bbolt
// have none, so that damage inside of a value may go unnoticed. So may a log that is
// replaced by an older copy of it, or lost its end: what is gone then cannot be told
// from what was never written. That a sector which is written while the power goes is
// the old one or the new one is assumed of the disk.
//
// # Group commit
//
// One goroutine commits. While it writes and syncs a group, Append gathers the
// next one; so a lone caller waits for one sync and many callers share one.
// A record that changes several times in a group is written once.
//
//	Append ─► open group ─► committing group ─► entry of a log, fdatasync ─► tickets
//	                Read looks here first, then in the logs' writes, then in bbolt
//
// # Logs
//
// There are two. When one has 4 MB the other is begun, and what the first holds
// is brought into the data file, in one bbolt transaction that also notes up to
// which group; then the first may be overwritten. So a page of the data file that
// changes all the time is written once for thousands of groups, and a group costs
// one write and one sync in place of bbolt's several and two. Groups over 1 MB,
// bodies of objects, go into the data file at once. Open stores what the logs hold
// beyond the data file, and Close leaves all in it: the data file of a hub that was
// stopped is whole by itself.
//
// # Why bbolt
//
// Measured against Pebble v2.1 on 2 cores of a shared machine (ext4, fsync of
// about 0.1 ms; 1 KB records, updates of 10,000 keys, every group fsynced):
//
//	                                        bbolt 1.5      Pebble 2
//	1 caller, 1 record a batch              5,000-6,100/s  11,600-16,200/s
//	1 caller, 5 records                     2,400-3,700/s   7,900-11,900/s
//	16 callers, 1 record                    11,000-17,000/s 51,000-66,000/s
//	16 callers, 20 records                  2,000-2,400/s   4,500-8,200/s
//	read 100,000 records at start           0.013 s         0.12-0.16 s
//	folder after 1,000,000 updates          32 MB           20 MB
//	folder for 100 MB of bodies, 5 rounds   150-170 MB      145-170 MB
//	modules in the binary                   2               31
//	size of a minimal binary                2.0 MB          17.4 MB
//
// Pebble commits two to four times faster. bbolt is chosen all the same: it opens
// at once, has no background compaction to disturb a test, keeps everything in one
// file, and costs two modules in place of thirty-one. The log before it brings the
// commits up: 9,000/s for one caller and 22,000/s for 16, one record of 1 KB each,
// beside other work on the same machine, and for a fan-out to ten over HTTP half of
// what it took of the processor.
//
// bbolt keeps its freelist on disk here: writing it made no difference to the
// figures, and rebuilding it made opening four times slower.
package disk
