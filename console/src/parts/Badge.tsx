import "@/parts/badge.css";
import type { ReactNode } from "react";
import { cut, seen, short, whole } from "@/parts/text";
import { type Tone, toneOf, wordsOf } from "@/parts/tones";

/** A state, in its colour and in words: nobody has to tell red from green. */
export function Status({ state, tone, title }: { state: string; tone?: Tone; title?: string }) {
  return (
    <span className={`badge ${tone ?? toneOf(state)}`} data-state={state} title={title}>
      <span className="badge-dot" aria-hidden="true" />
      {wordsOf(cut(seen(state), 40))}
    </span>
  );
}

/** A word with a tint: a kind, a scope, a label. */
export function Tag({ children, tone = "quiet" }: { children: ReactNode; tone?: Tone }) {
  return <span className={`tag ${tone}`}>{children}</span>;
}

/** A count beside a word. Large numbers are short; the title has all digits. */
export function Pill({ count, tone = "quiet" }: { count: number; tone?: Tone }) {
  return (
    <span className={`pill num ${tone}`} title={whole(count)}>
      {short(count)}
    </span>
  );
}
