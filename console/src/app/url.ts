/** The URL is the state: search parameters as plain text, repeated where there are several values. */
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";

export type Search = Readonly<Record<string, string | readonly string[]>>;
export type Changes = Readonly<Record<string, string | number | readonly string[] | null | undefined>>;

export interface Url {
  /** The first value of a parameter. */
  get(name: string): string | undefined;
  all(name: string): readonly string[];
  /** Everything, as the API's query takes it. */
  readonly search: Search;
  /** Change some parameters; null or "" removes one. `after` (the page) goes too unless it is among them. */
  set(changes: Changes, options?: { replace?: boolean }): void;
}

export function useUrl(): Url {
  const search = useLocation({ select: (location) => location.search }) as unknown as Search;
  const navigate = useNavigate();
  const set = useCallback(
    (changes: Changes, options: { replace?: boolean } = {}) => {
      void navigate({
        to: ".",
        search: ((before: Search) => changed(before, { after: null, ...changes })) as never,
        replace: options.replace ?? false,
        resetScroll: false,
      });
    },
    [navigate],
  );
  return useMemo(
    () => ({
      search,
      set,
      all: (name) => list(search[name]),
      get: (name) => list(search[name])[0],
    }),
    [search, set],
  );
}

export function parseSearch(text: string): Record<string, string | string[]> {
  const found: Record<string, string | string[]> = {};
  const given = new URLSearchParams(text);
  for (const name of new Set(given.keys())) {
    const values = given.getAll(name);
    found[name] = values.length > 1 ? values : (values[0] ?? "");
  }
  return found;
}

export function stringifySearch(search: Record<string, unknown>): string {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(search))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined && one !== null && one !== "") written.append(name, String(one));
  return written.size ? `?${written}` : "";
}

/** An address inside the console: `to("letters", id, { tab: "attempts" })`. */
export function to(screen: string, id?: string | null, search: Changes = {}): string {
  const path = id === undefined || id === null ? `/${screen}` : `/${screen}/${encodeURIComponent(id)}`;
  return path + stringifySearch(search);
}

function changed(before: Search, changes: Changes): Record<string, string | readonly string[]> {
  const after: Record<string, string | readonly string[]> = { ...before };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length)) delete after[name];
    else after[name] = typeof value === "number" ? String(value) : value;
  }
  return after;
}

function list(value: string | readonly string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return typeof value === "string" ? [value] : value;
}
