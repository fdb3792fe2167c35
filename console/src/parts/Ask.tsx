import "@/parts/ask.css";
import { createContext, type FormEvent, type ReactNode, useCallback, useContext, useEffect, useId, useRef, useState } from "react";
import { Button } from "@/parts/Button";
import { whole } from "@/parts/text";

export interface Question {
  readonly title: string;
  readonly body?: ReactNode;
  /** The button: a verb, and how many: "Replay 1,204 letters". */
  readonly confirm: string;
  readonly danger?: boolean;
  /** Whether somebody has to say why; the answer is in the audit trail. By default they may. */
  readonly reason?: "must" | "may" | "no";
  /** This number has to be typed before the button works: for what touches many. */
  readonly count?: number;
  /** More fields; their values are in the answer by name. */
  readonly fields?: readonly AskField[];
}

export interface AskField {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
  readonly type?: "text" | "number" | "password" | "textarea" | "checkbox" | "select" | "datetime-local";
  readonly options?: readonly (readonly [value: string, label: string])[];
  readonly value?: string;
  readonly must?: boolean;
  /** Characters at least. */
  readonly least?: number;
  readonly autoComplete?: string;
}

/** `reason`, and the values of the fields; a tick is "on" or "". */
export type Answer = Readonly<Record<string, string>> & { readonly reason: string };

const Asker = createContext<(question: Question) => Promise<Answer | null>>(() => Promise.resolve(null));

/** Ask before something is done: `const answer = await ask({ title, confirm, reason: "must" }); if (answer) …`. */
export function useAsk(): (question: Question) => Promise<Answer | null> {
  return useContext(Asker);
}

/** Holds the one dialog that can be open. */
export function AskProvider({ children }: { children: ReactNode }) {
  const [open, setOpen] = useState<{ question: Question; answer: (answer: Answer | null) => void; number: number }>();
  const number = useRef(0);
  const ask = useCallback(
    (question: Question) =>
      new Promise<Answer | null>((resolve) => {
        setOpen((before) => {
          before?.answer(null);
          return { question, answer: resolve, number: ++number.current };
        });
      }),
    [],
  );
  const end = (answer: Answer | null) => {
    open?.answer(answer);
    setOpen(undefined);
  };
  return (
    <Asker.Provider value={ask}>
      {children}
      {open && <AskDialog key={open.number} question={open.question} end={end} />}
    </Asker.Provider>
  );
}

function AskDialog({ question, end }: { question: Question; end: (answer: Answer | null) => void }) {
  const id = useId();
  const [typed, setTyped] = useState("");
  const wants = question.reason ?? "may";
  const counted = question.count === undefined || typed.replace(/[\s,.]/g, "") === String(question.count);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (!counted) return;
    const form = new FormData(event.currentTarget);
    const answer: Record<string, string> = { reason: String(form.get("reason") ?? "").trim() };
    for (const field of question.fields ?? []) answer[field.name] = String(form.get(field.name) ?? "");
    end(answer as Answer);
  };
  return (
    <Dialog title={question.title} close={() => end(null)}>
      <form onSubmit={submit} className="stack">
        {question.body !== undefined && <div className="wrap-any">{question.body}</div>}
        {question.fields?.map((field) => <AskInput key={field.name} field={field} />)}
        {wants !== "no" && (
          <div>
            <label className="label" htmlFor={`${id}-reason`}>
              Reason {wants === "may" && <span className="muted">(optional)</span>}
            </label>
            <textarea id={`${id}-reason`} name="reason" className="field" rows={2} maxLength={500} required={wants === "must"} dir="auto" />
            <p className="hint">It goes into the audit trail, with your name.</p>
          </div>
        )}
        {question.count !== undefined && (
          <div>
            <label className="label" htmlFor={`${id}-count`}>
              Type {whole(question.count)} to confirm
            </label>
            <input id={`${id}-count`} className="field num" inputMode="numeric" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
          </div>
        )}
        <div className="row ask-buttons">
          <Button onClick={() => end(null)}>Cancel</Button>
          <Button type="submit" look={question.danger ? "danger primary" : "primary"} why={counted ? undefined : `Type ${question.count} first.`}>
            {question.confirm}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function AskInput({ field }: { field: AskField }) {
  const id = useId();
  const common = { id, name: field.name, required: field.must ?? false, defaultValue: field.value, "aria-describedby": field.hint ? `${id}-hint` : undefined };
  if (field.type === "checkbox")
    return (
      <div>
        <label className="row">
          <input type="checkbox" id={id} name={field.name} defaultChecked={field.value === "on"} />
          {field.label}
        </label>
        {field.hint && <p className="hint">{field.hint}</p>}
      </div>
    );
  return (
    <div>
      <label className="label" htmlFor={id}>
        {field.label}
      </label>
      {field.type === "select" ? (
        <select {...common} className="field">
          {field.options?.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      ) : field.type === "textarea" ? (
        <textarea {...common} className="field mono" rows={5} dir="auto" />
      ) : (
        <input {...common} className="field" type={field.type ?? "text"} step="any" minLength={field.least} autoComplete={field.autoComplete ?? "off"} />
      )}
      {field.hint && (
        <p className="hint" id={`${id}-hint`}>
          {field.hint}
        </p>
      )}
    </div>
  );
}

/** A modal window over everything: the browser keeps the focus in it, and Escape closes it. */
export function Dialog({ title, close, children, wide = false }: { title: string; close: () => void; children: ReactNode; wide?: boolean }) {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    shown?.showModal();
    // The browser would begin at the button that closes.
    shown?.querySelector<HTMLElement>("input:not([type=checkbox]), select, textarea, .primary")?.focus();
    return () => {
      shown?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      className={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onMouseDown={(event) => event.target === event.currentTarget && close()}
    >
      <div className="dialog-inner">
        <header className="row spread">
          <h2 id={id}>{title}</h2>
          <Button look="plain" icon="close" aria-label="Close" onClick={close} />
        </header>
        {children}
      </div>
    </dialog>
  );
}
