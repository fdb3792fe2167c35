import "@/parts/card.css";
import { type ReactNode, useId } from "react";

/** A part of a screen with a heading, and what can be done in it at the right. */
export function Card({ title, actions, children, flush = false }: { title?: ReactNode; actions?: ReactNode; children: ReactNode; flush?: boolean }) {
  const id = useId();
  return (
    <section className="card" aria-labelledby={title === undefined ? undefined : id}>
      {title !== undefined && (
        <header>
          <h2 id={id}>{title}</h2>
          {actions !== undefined && <div className="row">{actions}</div>}
        </header>
      )}
      <div className={flush ? "card-body flush" : "card-body"}>{children}</div>
    </section>
  );
}

/** A screen's head: where we are, what it is, what can be done. `back` is a link to the list. */
export function Head({ title, back, badge, actions, children }: { title: ReactNode; back?: ReactNode; badge?: ReactNode; actions?: ReactNode; children?: ReactNode }) {
  return (
    <header className="head">
      <div className="head-words">
        {back !== undefined && <div className="head-back">{back}</div>}
        <div className="row">
          <h1>{title}</h1>
          {badge}
        </div>
        {children !== undefined && <p className="muted">{children}</p>}
      </div>
      {actions !== undefined && <div className="row head-actions">{actions}</div>}
    </header>
  );
}

/** One number that matters, with a word and perhaps a sparkline below. */
export function Figure({ label, value, note, tone, children }: { label: ReactNode; value: ReactNode; note?: ReactNode; tone?: "good" | "bad" | "warn" | "busy"; children?: ReactNode }) {
  return (
    <div className="figure">
      <div className="figure-label">{label}</div>
      <div className={`figure-value num${tone ? ` is-${tone}` : ""}`}>{value}</div>
      {note !== undefined && <div className="figure-note">{note}</div>}
      {children}
    </div>
  );
}
