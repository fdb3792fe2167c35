import "@/parts/json.css";
import { useState } from "react";
import { Copy } from "@/parts/Copy";
import { cut, plural, seen } from "@/parts/text";

const SHOWN_AT_ONCE = 100;
const LONG = 400;

/** Any JSON value, folded below `open` levels. Made of text nodes: nothing in it can become markup. */
export function Json({ value, open = 2, label }: { value: unknown; open?: number; label?: string }) {
  return (
    <div className="json" role="group" aria-label={label ?? "JSON"}>
      <div className="json-copy">
        <Copy text={JSON.stringify(value, null, 2) ?? "null"} label="Copy JSON" />
      </div>
      <Value value={value} open={open} />
    </div>
  );
}

function Value({ value, open }: { value: unknown; open: number }) {
  if (value === null || value === undefined) return <span className="json-null">null</span>;
  if (typeof value === "string") return <Quoted text={value} />;
  if (typeof value !== "object") return <span className="json-plain">{String(value)}</span>;
  return <Branch value={value} open={open} />;
}

function Branch({ value, open }: { value: object; open: number }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [most, setMost] = useState(SHOWN_AT_ONCE);
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  if (!entries.length) return <span className="json-null">{isList ? "[]" : "{}"}</span>;
  return (
    <details className="json-branch" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {isList ? "[" : "{"} <span className="json-size">{plural(entries.length, isList ? "item" : "field")}</span> {isList ? "]" : "}"}
      </summary>
      {isOpen && (
        <ul>
          {entries.slice(0, most).map(([name, inner]) => (
            <li key={name}>
              <span className="json-name" dir="auto">
                {cut(seen(name), 200)}
              </span>
              <span className="json-colon">: </span>
              <Value value={inner} open={open - 1} />
            </li>
          ))}
          {entries.length > most && (
            <li>
              <button type="button" className="button plain small" onClick={() => setMost(most * 10)}>
                {plural(entries.length - most, "more", "more")}
              </button>
            </li>
          )}
        </ul>
      )}
    </details>
  );
}

function Quoted({ text }: { text: string }) {
  const [whole, setWhole] = useState(false);
  const shown = seen(whole ? text : cut(text, LONG));
  return (
    <>
      <bdi dir="auto" className="json-text">
        "{shown}"
      </bdi>
      {text.length > LONG && (
        <button type="button" className="button plain small" onClick={() => setWhole(!whole)}>
          {whole ? "less" : `all ${plural(text.length, "character")}`}
        </button>
      )}
    </>
  );
}
