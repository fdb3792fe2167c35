import "@/parts/table.css";
import { type ColumnDef, flexRender, getCoreRowModel, type RowSelectionState, useReactTable } from "@tanstack/react-table";
import { type ReactNode, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Go, useGo } from "@/app/Go";
import { isTyping } from "@/app/keys";

export interface Column<Row> {
  /** Unique within the table; a column without one has a `label`. */
  readonly title: string;
  readonly cell: (row: Row) => ReactNode;
  /** CSS width, e.g. "120px" or "30%". Without one, columns share what is left. */
  readonly width?: string;
  readonly right?: boolean;
  /** Left out where there is little room. */
  readonly optional?: boolean;
  /** A name for screen readers where the title is a sign. */
  readonly label?: string;
}

export interface Selection {
  readonly ids: ReadonlySet<string>;
  readonly set: (ids: ReadonlySet<string>) => void;
}

interface Props<Row> {
  /** What the table is of; screen readers say it. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string;
  /** Where a row leads: its first cell becomes the link, and a click anywhere in the row follows it. */
  href?: (row: Row) => string;
  selection?: Selection;
  /** Instead of rows when there are none. */
  empty?: ReactNode;
  /** The rows belong to the question before; the answer is on its way. */
  stale?: boolean;
}

/** Rows that are long in both directions: cells are cut with an ellipsis, the header stays, j and k walk. */
export function Table<Row>({ label, columns, rows, id, href, selection, empty, stale = false }: Props<Row>) {
  const go = useGo();
  const body = useRef<HTMLTableSectionElement>(null);
  const [at, setAt] = useState(-1);
  const defs = useMemo<ColumnDef<Row>[]>(
    () => columns.map((column) => ({ id: keyOf(column), header: column.title, cell: (context) => column.cell(context.row.original) })),
    [columns],
  );
  const chosen = useMemo<RowSelectionState>(() => Object.fromEntries([...(selection?.ids ?? [])].map((one) => [one, true])), [selection?.ids]);
  const table = useReactTable<Row>({
    data: rows as Row[],
    columns: defs,
    getCoreRowModel: getCoreRowModel(),
    getRowId: (row) => id(row),
    enableRowSelection: selection !== undefined,
    state: { rowSelection: chosen },
    onRowSelectionChange: (update) => {
      const next = typeof update === "function" ? update(chosen) : update;
      selection?.set(new Set(Object.keys(next).filter((one) => next[one])));
    },
  });
  const found = table.getRowModel().rows;

  useWalk(found.length, at, setAt, (key) => {
    const row = found[at];
    if (!row) return;
    if (key === "x") row.toggleSelected();
    else if (href) go(href(row.original));
  });
  useEffect(() => {
    body.current?.rows[at]?.scrollIntoView({ block: "nearest" });
  }, [at]);

  if (!rows.length && empty !== undefined) return <>{empty}</>;
  return (
    <div className="table-frame">
      <table className={stale ? "table stale" : "table"} aria-label={label} aria-busy={stale || undefined}>
        <colgroup>
          {selection && <col style={{ width: "36px" }} />}
          {columns.map((column) => (
            <col key={keyOf(column)} className={column.optional ? "optional" : undefined} style={{ width: column.width }} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {selection && (
              <th scope="col" className="table-tick">
                <Tick label="Select all on this page" checked={table.getIsAllRowsSelected()} some={table.getIsSomeRowsSelected()} change={(on) => table.toggleAllRowsSelected(on)} />
              </th>
            )}
            {columns.map((column) => (
              <th key={keyOf(column)} scope="col" aria-label={column.label} className={classes(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {found.map((row, index) => (
            <tr
              key={row.id}
              className={`${index === at ? "at " : ""}${row.getIsSelected() ? "chosen " : ""}${href ? "linked" : ""}`}
              onClick={(event) => {
                if (!href || (event.target as HTMLElement).closest("a, button, input, label, summary") || window.getSelection()?.toString()) return;
                go(href(row.original));
              }}
            >
              {selection && (
                <td className="table-tick">
                  <Tick label={`Select row ${index + 1}`} checked={row.getIsSelected()} change={(on) => row.toggleSelected(on)} />
                </td>
              )}
              {row.getVisibleCells().map((cell, place) => {
                const column = columns[place]!;
                const content = flexRender(cell.column.columnDef.cell, cell.getContext());
                return (
                  <td key={cell.id} className={classes(column)}>
                    {place === 0 && href ? (
                      <Go to={href(row.original)} className="table-link">
                        {content}
                      </Go>
                    ) : (
                      content
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Tick({ label, checked, some = false, change }: { label: string; checked: boolean; some?: boolean; change: (on: boolean) => void }) {
  return (
    <input
      type="checkbox"
      aria-label={label}
      checked={checked}
      ref={(box) => {
        if (box) box.indeterminate = some && !checked;
      }}
      onChange={(event) => change(event.currentTarget.checked)}
    />
  );
}

/** The rows by keyboard, wherever the focus is, unless it is in a field or a dialog. */
function useWalk(count: number, at: number, move: (at: number) => void, act: (key: "x" | "Enter") => void): void {
  const latest = useRef({ count, at, move, act });
  latest.current = { count, at, move, act };
  // Before the rows are painted: who sees them can walk them.
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const now = latest.current;
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const onControl = event.target instanceof HTMLElement && event.target.closest("a, button, summary") !== null;
      if (event.key === "j") now.move(Math.min(now.at + 1, now.count - 1));
      else if (event.key === "k") now.move(Math.max(now.at - 1, 0));
      else if (event.key === "x" || (event.key === "Enter" && !onControl)) now.act(event.key);
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
}

function keyOf<Row>(column: Column<Row>): string {
  return column.title || column.label || "column";
}

function classes<Row>(column: Column<Row>): string | undefined {
  return [column.right ? "right num" : "", column.optional ? "optional" : "", column.width ? "" : "rest"].join(" ").trim() || undefined;
}
