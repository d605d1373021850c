package daemon_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// known adds an application and gives it as the edge would find it.
func (b *bench) known(r apps.Rule) *apps.App {
	b.t.Helper()
	key, err := b.AddApp(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.Applications().Find(digestOf(key))
}

func digestOf(key chain.Secret) [sha256.Size]byte { return sha256.Sum256([]byte(key.Reveal())) }

func TestAnApplicationUsesItsModelsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "alpha/a model=big | beta/b model=small | peer kind=peer")
		app := b.known(apps.Rule{Name: "notes", Models: []string{"beta/*"}})
		for _, c := range []struct {
			model, want string
			code        edge.Code
		}{
			{"auto", "answer of beta/b", ""}, {"small", "answer of beta/b", ""}, {"big", "", edge.ModelNotFound}, {"alpha/a", "", edge.ModelNotFound},
		} {
			text, _, err := b.ask(edge.Work{App: app, Model: c.model})
			if text != c.want || codeOf(err) != c.code {
				t.Errorf("%s: %q %v", c.model, text, err)
			}
			if err != nil && !strings.HasSuffix(err.Error(), "there are auto, beta/b") {
				t.Errorf("it is told of other models than its own: %v", err)
			}
		}
		if m := b.Models(app).Agents; len(m) != 1 || m[0].ID != "beta/b" {
			t.Errorf("its models: %v", m)
		}
		none := b.known(apps.Rule{Name: "none", Models: []string{"gamma/*"}})
		if _, _, err := b.ask(edge.Work{App: none}); codeOf(err) != edge.ModelNotFound {
			t.Errorf("none of the chain's: %v", err)
		}
		b.provider.fail("beta/b", chain.Unreachable)
		_, result, err := b.ask(edge.Work{App: app})
		if _, protests, _ := b.hub.take(); err != nil || result.End == walk.Answered || len(protests) > 0 {
			t.Errorf("a protest would bring what it may not use: %+v %v, %d protests", result, err, len(protests))
		}
	})
}

// What only an application's own budget forbids is said as that, until when it does; the hub
// hears nothing of it, and the trace knows it too.
func TestAnApplicationsBudgetIsUsedUp(t *testing.T) {
	for _, async := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := joined(t, "paid/m in=1000 out=1000 | peer kind=peer")
			b.hub.take()
			app := b.known(apps.Rule{Name: "notes", Budget: 1_000})
			_, result, err := b.ask(edge.Work{App: app, Async: async})
			if err != nil || result.End != walk.OverBudget || result.RetryAfter != time.Hour {
				t.Fatalf("%+v %v", result, err)
			}
			now := time.Now().UTC()
			anew := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
			if want := "the budget of application notes is used up until " + anew + ": $0.001 of $0.001 a month are left, and this may cost $1.2"; !strings.HasPrefix(result.Why, want) {
				t.Errorf("%q\nwant %q", result.Why, want)
			}
			synctest.Wait()
			if _, protests, _ := b.hub.take(); len(protests) > 0 || b.Status().Requests.Protests != 0 {
				t.Errorf("an extension cannot help, and the hub was asked: %+v", protests)
			}
			trace := b.Traces("")
			if len(trace) != 1 || trace[0].End != "over_budget" || trace[0].Why != result.Why || len(trace[0].PassedOver) == 0 || trace[0].PassedOver[0].Class != chain.Ceiling {
				t.Errorf("%+v", trace)
			}
		})
	}
}

// An application's work is done for its scope.
func TestAnApplicationHasItsScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "home/m")
		if _, err := b.AddApp(apps.Rule{Name: "other", Scope: "workspace:elsewhere"}); !errors.As(err, new(control.Asked)) {
			t.Errorf("a scope that the device is no member of: %v", err)
		}
		app := b.known(apps.Rule{Name: "mine", Scope: chain.DefaultScope})
		if text, _, err := b.ask(edge.Work{App: app}); text != "answer of home/m" {
			t.Errorf("%q %v", text, err)
		}
	})
}

// A budget is reserved before an attempt and settled after; what costs nothing goes
// on when it is used up. Both survive a restart, and so does what was used.
func TestAnApplicationsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "paid/m in=1000 out=1000 | free/m")
		app := b.known(apps.Rule{Name: "notes", Budget: 1_230_000})
		answers := func(b *bench, app *apps.App, want string) {
			t.Helper()
			if text, _, err := b.ask(edge.Work{App: app}); text != "answer of "+want {
				t.Errorf("%q %v, want %s", text, err, want)
			}
		}
		answers(b, app, "paid/m")
		if spent := b.Apps()[0].Spent; spent != 15_000 { // 15 tokens at 1000 dollars a million
			t.Fatalf("spent %d", spent)
		}
		answers(b, app, "paid/m") // some 1,202,000 are set aside for an answer of 1,200 tokens
		answers(b, app, "free/m")
		answers(b, nil, "paid/m") // the device's own key has no budget
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		again := restarted(t, b)
		if fmt.Sprint(again.Apps()) != fmt.Sprint(b.Apps()) || fmt.Sprint(again.Usage(time.Now())) != fmt.Sprint(b.Usage(time.Now())) {
			t.Errorf("%v %v\nbefore %v %v", again.Apps(), again.Usage(time.Now()), b.Apps(), b.Usage(time.Now()))
		}
		rows := b.Usage(time.Now())
		if len(rows) != 3 || rows[0].App != "" || rows[1] != (apps.Row{Day: rows[1].Day, App: "notes", Model: "free/m", Requests: 1, Input: rows[1].Input, Output: rows[1].Output}) || rows[2].Money != b.Apps()[0].Spent {
			t.Errorf("%+v", rows)
		}
		if err := again.RemoveApp("notes"); err != nil || len(again.Apps()) != 0 {
			t.Error(err)
		}
		if err := again.RemoveApp("notes"); !errors.As(err, new(control.Asked)) {
			t.Error(err)
		}
	})
}
