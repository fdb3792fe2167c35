import "@/parts/filters.css";
import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { useUrl } from "@/app/url";
import { Pill } from "@/parts/Badge";
import { Icon } from "@/parts/Icon";
import { cut, seen } from "@/parts/text";

export interface Option {
  readonly value: string;
  readonly count?: number;
  /** Shown instead of the value. */
  readonly label?: string;
}

export interface Field {
  /** The search parameter, and the API's. */
  readonly name: string;
  readonly label: string;
  /** Known values: a list (facets), or a question that is asked while somebody types. */
  readonly options?: readonly Option[] | ((typed: string) => Promise<readonly Option[]>);
  /** Several values at once. */
  readonly several?: boolean;
  /** Text without `name:` in front goes here. */
  readonly free?: boolean;
  /** An example of a value. */
  readonly example?: string;
}

interface Choice {
  readonly field: Field;
  readonly value?: string;
  readonly label: string;
  readonly count?: number | undefined;
}

/** One line that filters: `domain:payments`, with suggestions. What holds is in the URL, and shown as chips. */
export function Filters({ fields, label = "Filter" }: { fields: readonly Field[]; label?: string }) {
  const url = useUrl();
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const asked = useAsked(fields, typed);
  const choices = useMemo(() => suggestions(fields, typed, asked), [fields, typed, asked]);
  const held = fields.flatMap((field) => url.all(field.name).map((value) => ({ field, value })));

  const hold = (field: Field, value: string) => {
    url.set({ [field.name]: field.several ? [...new Set([...url.all(field.name), value])] : value });
    setTyped("");
    setAt(0);
  };
  const drop = (field: Field, value: string) => {
    url.set({ [field.name]: url.all(field.name).filter((one) => one !== value) });
    input.current?.focus();
  };
  const take = (choice: Choice) => {
    if (choice.value !== undefined) hold(choice.field, choice.value);
    else {
      setTyped(`${choice.field.name}:`);
      setAt(0);
    }
    input.current?.focus();
  };
  const enter = () => {
    const choice = isOpen ? choices[at] : undefined;
    const { field, rest } = parsed(fields, typed);
    if (choice && (choice.value === undefined || at > 0 || !rest || choice.value === rest || !field)) take(choice);
    else if (rest && field) hold(field, rest);
    else {
      const free = fields.find((one) => one.free);
      if (free && typed.trim()) hold(free, typed.trim());
    }
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      setAt((before) => (choices.length ? (before + (event.key === "ArrowDown" ? 1 : -1) + choices.length) % choices.length : 0));
    } else if (event.key === "Enter") {
      event.preventDefault();
      enter();
    } else if (event.key === "Escape") {
      if (isOpen && typed) setTyped("");
      else input.current?.blur();
      setOpen(false);
    } else if (event.key === "Backspace" && typed === "") {
      const last = held.at(-1);
      if (last) drop(last.field, last.value);
    }
  };

  return (
    <div className="filters" onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && setOpen(false)}>
      <Icon name="filter" size={14} />
      {held.map(({ field, value }) => (
        <span key={`${field.name}=${value}`} className="chip">
          <span className="chip-name">{field.label}</span>
          <bdi dir="auto">{cut(seen(shownAs(field, value)), 60)}</bdi>
          <button type="button" aria-label={`Remove ${field.label} ${cut(seen(value), 60)}`} onClick={() => drop(field, value)}>
            <Icon name="close" size={10} />
          </button>
        </span>
      ))}
      <input
        ref={input}
        data-filter=""
        className="filters-input"
        role="combobox"
        aria-label={label}
        aria-expanded={isOpen && choices.length > 0}
        aria-controls={`${id}-list`}
        aria-autocomplete="list"
        aria-activedescendant={isOpen && choices[at] ? `${id}-${at}` : undefined}
        autoComplete="off"
        spellCheck={false}
        placeholder={held.length ? "" : `${label} by ${fields.map((field) => field.label.toLowerCase()).join(", ")}`}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setOpen(true);
          setAt(0);
        }}
        onFocus={() => setOpen(true)}
        onClick={() => setOpen(true)}
        onKeyDown={pressed}
      />
      {held.length > 0 && (
        <button type="button" className="button plain small" onClick={() => url.set(Object.fromEntries(fields.map((field) => [field.name, null])))}>
          Clear
        </button>
      )}
      <kbd aria-hidden="true">/</kbd>
      <ul id={`${id}-list`} role="listbox" aria-label="Suggestions" className="filters-list" hidden={!isOpen || !choices.length}>
        {choices.map((choice, index) => (
          <li
            key={`${choice.field.name}:${choice.value ?? ""}`}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at}
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => take(choice)}
          >
            <span className="filters-field">{choice.value === undefined ? `${choice.field.name}:` : choice.field.label}</span>
            <bdi dir="auto">{cut(seen(choice.label), 80)}</bdi>
            {choice.count !== undefined && <Pill count={choice.count} />}
          </li>
        ))}
      </ul>
    </div>
  );
}

function suggestions(fields: readonly Field[], typed: string, asked: readonly Option[]): Choice[] {
  const { field, rest } = parsed(fields, typed);
  if (field) return [...known(field), ...asked].filter((option) => fits(option, rest)).slice(0, 12).map((option) => choice(field, option));
  const wanted = typed.trim().toLowerCase();
  const names = fields.filter((one) => !wanted || one.label.toLowerCase().includes(wanted) || one.name.includes(wanted));
  const values = wanted ? fields.flatMap((one) => known(one).filter((option) => fits(option, wanted)).map((option) => choice(one, option))) : [];
  return [...values.slice(0, 8), ...names.map((one) => ({ field: one, label: wanted ? one.label : (one.example ?? one.label) }))];
}

function useAsked(fields: readonly Field[], typed: string): readonly Option[] {
  const [found, setFound] = useState<readonly Option[]>([]);
  const { field, rest } = parsed(fields, typed);
  const ask = typeof field?.options === "function" ? field.options : undefined;
  useEffect(() => {
    setFound([]);
    if (!ask) return;
    let isWanted = true;
    const timer = window.setTimeout(() => {
      // Suggestions are a courtesy: without them the value can still be typed.
      void ask(rest).then((options) => isWanted && setFound(options), () => undefined);
    }, 150);
    return () => {
      isWanted = false;
      window.clearTimeout(timer);
    };
  }, [ask, rest]);
  return found;
}

function parsed(fields: readonly Field[], typed: string): { field: Field | undefined; rest: string } {
  const at = typed.indexOf(":");
  const name = at < 0 ? "" : typed.slice(0, at).trim().toLowerCase();
  const field = fields.find((one) => one.name === name || one.label.toLowerCase() === name);
  return { field, rest: field ? typed.slice(at + 1).trim() : "" };
}

function known(field: Field): readonly Option[] {
  return typeof field.options === "function" ? [] : (field.options ?? []);
}

function shownAs(field: Field, value: string): string {
  return known(field).find((option) => option.value === value)?.label ?? value;
}

function fits(option: Option, wanted: string): boolean {
  return `${option.value} ${option.label ?? ""}`.toLowerCase().includes(wanted.toLowerCase());
}

function choice(field: Field, option: Option): Choice {
  return { field, value: option.value, label: option.label ?? option.value, count: option.count };
}

/** Counts as options, the largest first: `counted(facets.by_status)`. */
export function counted(counts: Readonly<Record<string, number>> | undefined): readonly Option[] {
  return Object.entries(counts ?? {})
    .map(([value, count]) => ({ value, count }))
    .sort((a, b) => b.count - a.count || a.value.localeCompare(b.value));
}
