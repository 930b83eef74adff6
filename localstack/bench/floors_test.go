package bench_test

// A floor is the least that an operation could ask of DynamoDB (of S3, where there
// are no units) and keep its promise.
type floor struct {
	requests, rounds, writes, reads float64
	why                             string
}

// floors are those of the operations.
var floors = map[string]floor{
	"register":          {1, 1, 1, 0, "one conditional write gives the next generation"},
	"register-new":      {1, 1, 2, 0, "the item, and the entry by which a sweep finds it"},
	"register-5-topics": {2, 2, 6, 0, "five followers, written before the agent says that it follows"},
	"heartbeat":         {1, 1, 1, 0, "one conditional write"},
	"heartbeat-20":      {20, 1, 20, 0, "a transaction would cost twice the units"},
	"status-report":     {1, 1, 1, 0, "one conditional write"},
	"deregister":        {1, 1, 2, 0, "the item, and the entry that goes"},
	"agent-status":      {2, 1, 0, 2, "the agent, and what waits for it"},
	"hub-status":        {1, 1, 0, 1, "counts that a sweep has rolled up"},
	"health":            {1, 1, 0, 1, "one read shows that the table answers"},
	"list-agents":       {2, 2, 0, 21, "an index finds 20, a strongly consistent read tells them"},

	"publish":           {1, 1, 3, 0, "the item, its place in the inbox, its expiry"},
	"publish-topic-10":  {12, 3, 31, 2, "followers read, recipients fixed, a delivery each"},
	"publish-role":      {1, 1, 3, 0, "as publish: the inbox is the role's own"},
	"handoff":           {1, 1, 3, 0, "as publish"},
	"result":            {2, 2, 2, 1, "followers read, recipients fixed; nobody follows"},
	"control":           {1, 1, 3, 0, "as publish"},
	"ask":               {1, 1, 3, 0, "as publish"},
	"drain-10":          {11, 2, 30, 2, "found, then each taken by a conditional write; a transaction would cost twice"},
	"drain-empty":       {1, 1, 0, 1, "one strongly consistent query"},
	"lease-10":          {11, 2, 30, 2, "as drain-10: each moves in inbox and expiry"},
	"ack":               {1, 1, 3, 0, "the item, out of the inbox, out of the expiries"},
	"nack":              {1, 1, 3, 0, "the item, back in the inbox, its expiry"},
	"list-dead-letters": {1, 1, 0, 1, "one query of an index"},

	"role-candidate":   {1, 1, 1, 0, "one conditional write"},
	"role-ensure":      {2, 2, 7, 1, "the candidates read; the role and its message in one transaction"},
	"role-acknowledge": {1, 1, 4, 0, "the role written and the agent's lease checked in one transaction"},
	"role-fence-check": {1, 1, 0, 4, "role and holder in one transactional read"},
	"role-release":     {1, 1, 1, 0, "one conditional write"},
	"role-reserve":     {1, 1, 1, 0, "one conditional write"},
	"role-status":      {2, 2, 0, 2, "an index finds the roles, a read tells them"},

	"human-request":      {1, 1, 3, 0, "the item, its deadline, its place among the pending"},
	"human-submit":       {2, 2, 9, 1, "read; then request and message in one transaction"},
	"human-get":          {1, 1, 0, 1, "one read"},
	"list-human-pending": {2, 2, 0, 2, "an index, then the items"},

	"assign":           {1, 1, 10, 0, "job and dispatch in one transaction, twice the units of their writes"},
	"assign-result":    {2, 2, 12, 1, "read; then job and message in one transaction"},
	"assign-status":    {1, 1, 0, 1, "one read"},
	"assign-retry":     {2, 2, 12, 1, "as assign-result"},
	"assign-cancel":    {2, 2, 12, 1, "as assign-result"},
	"list-assignments": {2, 2, 0, 20, "an index finds 20, a read tells them"},
	"events-poll":      {1, 1, 0, 1, "one query"},

	"reflexion-lookup": {1, 1, 0, 1, "one read by the exact pattern"},
	"reflexion-learn":  {1, 1, 2, 0, "the item, its place in the list"},
	"reflexion-hit":    {1, 1, 1, 0, "one conditional write"},
	"list-reflexion":   {2, 2, 0, 20, "an index finds 20, a read tells them"},

	"pipeline-init":    {1, 1, 2, 0, "the item, its place in the list"},
	"pipeline-advance": {2, 2, 2, 1, "read to know what may follow; one conditional write"},
	"pipeline-state":   {1, 1, 0, 1, "one read"},

	"queue-enqueue":  {2, 2, 0, 0, "S3: the index key before the document it announces"},
	"queue-claim":    {3, 3, 0, 0, "S3: listed, read, taken by a conditional put"},
	"queue-renew":    {2, 2, 0, 0, "S3: read, conditional put"},
	"queue-complete": {3, 3, 0, 0, "S3: read, conditional put, the index key removed"},
	"queue-stats":    {1, 1, 0, 0, "S3: one list of at most 1,000 keys"},
}
