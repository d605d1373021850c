package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/chordwheel/chordwheel/chain"
)

func (a *app) chat() *cobra.Command {
	model := "auto"
	c := &cobra.Command{
		Use:   "chat [MESSAGE]",
		Short: "Ask through the edge and print the answer as it comes",
		Long:  "Ask one question, given as arguments or on standard input, and print the answer as it comes.\nWhich option answered stands on standard error.",
		Example: `  chordwheel chat "what can you do?"
  chordwheel chat --model alpha/small "hello"
  git diff | chordwheel chat "what changed?"`,
		RunE: func(c *cobra.Command, args []string) error {
			message, err := a.message(args)
			if err != nil {
				return err
			}
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			question := map[string]any{"model": model, "stream": !a.json, "messages": []map[string]string{{"role": "user", "content": message}}}
			response, err := n.open(c.Context(), http.MethodPost, "/v1/chat/completions", question)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				b, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
				return answerError(n.what, "a chat", response.StatusCode, b)
			}
			if a.json {
				_, err := io.Copy(a.out, response.Body)
				fmt.Fprintln(a.out)
				return err
			}
			if err := streamAnswer(a.out, response.Body); err != nil {
				return err
			}
			fmt.Fprintln(a.out)
			if a.terminal() {
				fmt.Fprintln(a.err, a.paint(grey, "— "+response.Header.Get("X-Chordwheel-Option")))
			}
			return nil
		},
	}
	c.Flags().StringVar(&model, "model", model, "`MODEL` to ask: auto, an option's id or a model's name")
	return c
}

// message is the question: the arguments, what is piped in, or both.
func (a *app) message(args []string) (string, error) {
	text := strings.Join(args, " ")
	if f, ok := a.in.(*os.File); ok && !term.IsTerminal(int(f.Fd())) || !ok {
		if info, err := statInput(a.in); err == nil && info {
			b, err := io.ReadAll(io.LimitReader(a.in, 4<<20))
			if err != nil {
				return "", fmt.Errorf("read standard input: %w", err)
			}
			if piped := strings.TrimSpace(string(b)); piped != "" {
				text = strings.TrimSpace(text + "\n\n" + piped)
			}
		}
	}
	if strings.TrimSpace(text) == "" {
		return "", usage(`there is no message; try: chordwheel chat "what can you do?"`)
	}
	return text, nil
}

// statInput reports whether standard input is a pipe or a file, as against a
// terminal or nothing.
func statInput(in io.Reader) (bool, error) {
	f, ok := in.(*os.File)
	if !ok {
		return true, nil
	}
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	return info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0, nil
}

// streamAnswer prints the text of a stream's events as they come.
func streamAnswer(w io.Writer, body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), 16<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok || string(data) == "[DONE]" {
			continue
		}
		var event struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
			Error *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return fmt.Errorf("the edge sent an event that is not JSON: %w", err)
		}
		if event.Error != nil {
			return errors.New(event.Error.Message)
		}
		for _, choice := range event.Choices {
			if _, err := io.WriteString(w, choice.Delta.Content); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func (a *app) run() *cobra.Command {
	var options string
	c := &cobra.Command{
		Use:   "run PRIMITIVE [INPUT]",
		Short: "Get one piece of work of any primitive done",
		Long: `Get one piece of work done by the chain of PRIMITIVE. INPUT is JSON or plain
text; without it, standard input is read.`,
		Example: `  chordwheel run llm.chat "hello"
  chordwheel run llm.chat '{"messages":[{"role":"user","content":"hello"}]}'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			primitive, err := chain.ParsePrimitive(args[0])
			if err != nil {
				return usage("%w", err)
			}
			text, err := a.message(args[1:])
			if err != nil {
				return err
			}
			question := map[string]any{"input": workInput(text)}
			if options != "" {
				if !json.Valid([]byte(options)) {
					return usage("--options must be a JSON object, such as '{\"temperature\":0}'")
				}
				question["options"] = json.RawMessage(options)
			}
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			var answer struct {
				Output    json.RawMessage `json:"output"`
				Option    string          `json:"option"`
				Attempts  int             `json:"attempts"`
				RequestID string          `json:"request_id"`
			}
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/work/"+string(primitive), question, &answer); err != nil {
				return err
			}
			return a.print(answer, func(w io.Writer) { fmt.Fprintln(w, plainOutput(answer.Output)) })
		},
	}
	c.Flags().StringVar(&options, "options", "", "further options of the work, a `JSON` object")
	return c
}

// workInput takes JSON as it is and anything else as text. A chat that names no
// model leaves the choice to the chain.
func workInput(text string) any {
	var chat map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &chat) == nil && chat["messages"] != nil {
		if chat["model"] == nil {
			chat["model"] = json.RawMessage(`"auto"`)
		}
		return chat
	}
	if t := strings.TrimSpace(text); (strings.HasPrefix(t, "{") || strings.HasPrefix(t, "[") || strings.HasPrefix(t, `"`)) && json.Valid([]byte(t)) {
		return json.RawMessage(t)
	}
	return text
}

// plainOutput shows a chat answer's or a string's text, and any other output as
// the JSON it is.
func plainOutput(output json.RawMessage) string {
	var text string
	if json.Unmarshal(output, &text) == nil {
		return text
	}
	var answer struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(output, &answer) == nil && len(answer.Choices) > 0 {
		return answer.Choices[0].Message.Content
	}
	return string(output)
}
