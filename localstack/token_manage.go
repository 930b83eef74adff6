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
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"drawbridge/core"
	"drawbridge/ddb"
	"drawbridge/localstack/doctor"
	"drawbridge/localstack/fakeaws"
	"drawbridge/localstack/template"
)

const managingHelp = `Usage: go run ./localstack token create -name NAME [-scope SCOPE] [-agent ID]... [-expires DURATION]
       go run ./localstack token list
       go run ./localstack token rotate NAME|ID [-overlap DURATION]
       go run ./localstack token revoke NAME|ID

Manages the tokens of a hub through its table. create and rotate write the token
to standard output, once, and nothing else: TOKEN=$(... token create -name ci).
With -table the table is in AWS, by the credentials and the region of the
environment. Without it it is that of AWS_ENDPOINT_URL or of the hub on this
machine, running or not.

`

// manageToken is the command token.
func manageToken(ctx context.Context, args []string, t terminal) error {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "create":
		return createToken(ctx, args, t)
	case "list":
		return listTokens(ctx, args, t)
	case "revoke":
		return revokeToken(ctx, args, t)
	case "rotate":
		return rotateToken(ctx, args, t)
	case "-h", "-help", "--help":
		fmt.Fprint(t.out, managingHelp)
		return flag.ErrHelp
	}
	return &usageError{fmt.Sprintf("token %q is not understood: create, list, rotate or revoke", name)}
}

func createToken(ctx context.Context, args []string, t terminal) error {
	place := newTokenPlace("create", t)
	var r core.TokenRequest
	place.flags.StringVar(&r.Name, "name", "", "who the token is for: `text` for people, shown in the list")
	place.flags.StringVar((*string)(&r.Scope), "scope", string(core.ScopeAgent), "what it may be used for: read, agent or operator, each with the ones before")
	place.flags.Func("agent", "an `id` it may act as; may be repeated (default: any agent)", func(id string) error {
		r.AgentIDs = append(r.AgentIDs, id)
		return nil
	})
	place.flags.DurationVar(&r.Lifetime, "expires", 0, "`duration` after which it ends, such as 2160h; 0: never")
	return place.run(ctx, args, func(tokens *core.Tokens) error {
		made, err := tokens.Create(ctx, r, place.show)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.err, "made %s: %s\n", tokenText(made), tokenGrant(made))
		return nil
	})
}

func listTokens(ctx context.Context, args []string, t terminal) error {
	place := newTokenPlace("list", t)
	return place.run(ctx, args, func(tokens *core.Tokens) error {
		all, err := tokens.List(ctx)
		if err != nil {
			return err
		}
		now := core.InstantOf(time.Now())
		table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "ID\tNAME\tSTATUS\tSCOPES\tAGENTS\tCREATED\tEXPIRES\tREVOKED")
		for i, id := range core.TokenIDs(all) {
			token := all[i]
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", id, printable(token.Name), token.State(now), scopesText(token), agentsText(token),
				momentText(token.CreatedAt), momentText(token.ExpiresAt), momentText(token.RevokedAt))
		}
		return table.Flush()
	})
}

func revokeToken(ctx context.Context, args []string, t terminal) error {
	place := newTokenPlace("revoke", t)
	ref, args := takeRef(args)
	return place.run(ctx, args, func(tokens *core.Tokens) error {
		if ref == "" {
			return &usageError{"token revoke needs the name or the id of a token"}
		}
		revoked, err := tokens.Revoke(ctx, ref)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.err, "revoked %s at %s; whoever has just used it may for 30 s more\n", tokenText(revoked), momentText(revoked.RevokedAt))
		return nil
	})
}

func rotateToken(ctx context.Context, args []string, t terminal) error {
	place := newTokenPlace("rotate", t)
	overlap := place.flags.Duration("overlap", 24*time.Hour, "`duration` for which the old token works beside the new one")
	ref, args := takeRef(args)
	return place.run(ctx, args, func(tokens *core.Tokens) error {
		if ref == "" {
			return &usageError{"token rotate needs the name or the id of a token"}
		}
		done, err := tokens.Rotate(ctx, ref, *overlap, place.show)
		if done.Fresh.Hash != "" {
			fmt.Fprintf(t.err, "made %s: %s\n", tokenText(done.Fresh), tokenGrant(done.Fresh))
		}
		for _, old := range done.Retired {
			fmt.Fprintf(t.err, "%s works until %s\n", tokenText(old), momentText(old.Ends()))
		}
		if err != nil && done.Fresh.Hash != "" {
			return fmt.Errorf("the new token works and so does the old one; rotate again: %w", err)
		}
		return err
	})
}

// takeRef takes the name or id of a token from the front or the end.
func takeRef(args []string) (string, []string) {
	switch last := len(args) - 1; {
	case last < 0:
		return "", args
	case !strings.HasPrefix(args[0], "-"):
		return args[0], args[1:]
	case !strings.HasPrefix(args[last], "-"):
		return args[last], args[:last]
	}
	return "", args
}

// A tokenPlace is the table that a token command works on.
type tokenPlace struct {
	terminal terminal
	flags    *flag.FlagSet
	table    *string
	endpoint *string
	data     *string
	template *string
}

func newTokenPlace(name string, t terminal) *tokenPlace {
	flags := flag.NewFlagSet("token "+name, flag.ContinueOnError)
	p := &tokenPlace{
		terminal: t, flags: flags,
		table:    flags.String("table", "", "`name` of the hub's table in AWS, as the stack's output tells it"),
		endpoint: flags.String("endpoint", "", "`URL` of DynamoDB (default: AWS_ENDPOINT_URL; with -table AWS, else the hub on this machine)"),
		data:     flags.String("data", ".drawbridge", "the data `folder` of the hub on this machine"),
		template: flags.String("template", "", "the SAM template `file` (default: template.yaml here or in a folder above)"),
	}
	flags.Usage = func() {
		fmt.Fprint(t.out, managingHelp)
		flags.PrintDefaults()
	}
	return p
}

// show writes a token where only the caller of the command sees it.
func (p *tokenPlace) show(secret string) error {
	_, err := fmt.Fprintln(p.terminal.out, secret)
	return err
}

// run parses the flags and does what there is to do with the table's tokens.
func (p *tokenPlace) run(ctx context.Context, args []string, do func(*core.Tokens) error) (err error) {
	if err := parseFlags(p.flags, args, p.terminal); err != nil {
		return err
	}
	at, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	store := ddb.Open(dynamodb.NewFromConfig(at.cfg), ddb.Table{Name: at.table, Region: at.cfg.Region})
	err = do(core.NewTokens(store, core.SystemClock{}, rand.Reader))
	if isOfTheStore(err) {
		return fmt.Errorf("table %s at %s: %w", at.table, at.place, doctor.Explain(err, at.place, at.cfg.Region))
	}
	return err
}

// isOfTheStore tells whether the table is what failed.
func isOfTheStore(err error) bool {
	var failed *core.Error
	if !errors.As(err, &failed) {
		return false
	}
	kind := failed.Code.Entry().Kind
	return kind == core.KindInternal || kind == core.KindUnavailable
}

// A tokenTable is a table that was found, and how to let go of it.
type tokenTable struct {
	cfg   aws.Config
	table string
	place string
	close func() error
}

func nothingToClose() error { return nil }

// open finds the table: at the endpoint that is named, in AWS, in the data folder
// of a hub that does not run, or at the one that does.
func (p *tokenPlace) open(ctx context.Context) (tokenTable, error) {
	t := p.terminal
	named := cmp.Or(*p.endpoint, t.getenv(endpointVariable))
	if named == "" && *p.table != "" {
		cfg, err := config.LoadDefaultConfig(ctx)
		if err == nil && cfg.Region == "" {
			err = errors.New("AWS_REGION is not set: it says where the table is")
		}
		if err != nil {
			return tokenTable{}, fmt.Errorf("load the AWS configuration: %w", err)
		}
		return tokenTable{cfg: cfg, table: *p.table, place: "AWS", close: nothingToClose}, nil
	}
	table, err := p.tableName()
	if err != nil {
		return tokenTable{}, err
	}
	if named != "" {
		e, err := openEndpoint(ctx, named, t.getenv)
		return tokenTable{cfg: e.cfg, table: table, place: named, close: nothingToClose}, err
	}
	return p.openLocal(ctx, table)
}

// tableName is the name of a table that is not in AWS.
func (p *tokenPlace) tableName() (string, error) {
	if name := cmp.Or(*p.table, p.terminal.getenv("TABLE_NAME")); name != "" {
		return name, nil
	}
	path, err := findTemplate(*p.template)
	if err != nil {
		return "", err
	}
	declared, err := template.Load(path, template.Local())
	if err != nil {
		return "", err
	}
	if len(declared.Tables) != 1 {
		return "", fmt.Errorf("%s: %w", path, errNoState)
	}
	return declared.Tables[0].Name, nil
}

// openLocal opens the data folder of the hub on this machine. One that is in use
// says where the hub that uses it answers.
func (p *tokenPlace) openLocal(ctx context.Context, table string) (tokenTable, error) {
	folder := stateFolder(*p.data)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return tokenTable{}, fmt.Errorf("no hub has kept its state in %s: start one, name its data folder with -data or its AWS endpoint with -endpoint; for one in AWS name the table with -table", folder)
	}
	server, locked := fakeaws.Open(fakeaws.Options{Dir: folder})
	if locked == nil {
		return tokenTable{cfg: server.Config(), table: table, place: folder, close: server.Close}, nil
	}
	address, err := os.ReadFile(filepath.Join(*p.data, endpointFile))
	if err != nil {
		return tokenTable{}, fmt.Errorf("open the hub's state, or name the AWS endpoint of the hub that runs with -endpoint: %w", locked)
	}
	running := strings.TrimSpace(string(address))
	e, err := openEndpoint(ctx, running, p.terminal.getenv)
	return tokenTable{cfg: e.cfg, table: table, place: running, close: nothingToClose}, err
}

// tokenText names a token for people.
func tokenText(t core.Token) string {
	return fmt.Sprintf("token %s (%s)", core.TokenIDs([]core.Token{t})[0], printable(t.Name))
}

// tokenGrant says what a token may be used for.
func tokenGrant(t core.Token) string {
	expires := "never expires"
	if t.ExpiresAt != 0 {
		expires = "expires " + momentText(t.ExpiresAt)
	}
	return fmt.Sprintf("scope %s, agents %s, %s", scopesText(t), agentsText(t), expires)
}

func scopesText(t core.Token) string {
	scopes := make([]string, 0, len(t.Scopes))
	for _, scope := range t.Scopes {
		scopes = append(scopes, printable(string(scope)))
	}
	return strings.Join(scopes, ",")
}

func agentsText(t core.Token) string {
	if len(t.AgentIDs) == 0 {
		return "any"
	}
	ids := make([]string, 0, len(t.AgentIDs))
	for _, id := range t.AgentIDs {
		ids = append(ids, printable(id))
	}
	return strings.Join(ids, ",")
}

func momentText(i core.Instant) string {
	if i == 0 {
		return "-"
	}
	return i.Time().Format(time.RFC3339)
}

// printable quotes a text that would do something else to a terminal, or to the
// table, than be read: control and format characters, odd spaces.
func printable(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return fmt.Sprintf("%+q", text)
	}
	return text
}
