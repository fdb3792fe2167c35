/** Which letters a bulk operation is about, between the URL and the API. */
import type { Answer } from "@/api/client";
import type { components } from "@/api/schema";
import type { Url } from "@/app/url";
import { to } from "@/app/url";

export type Operation = Answer<"/api/v1/bulk">["items"][number];
export type Filter = components["schemas"]["Filter"];
export type Action = components["schemas"]["BulkAction"];

/** The search parameters of the letters' list that say which letters are meant. */
export const FILTERED = ["status", "domain", "failure_type", "entity_type", "entity_id", "user_id", "created_from", "created_to"] as const;

export const ACTIONS: Readonly<Record<Action, { readonly title: string; readonly verb: string; readonly does: string }>> = {
  replay: { title: "Replay", verb: "Replay", does: "Pending letters are called again by the program's workers, each with what is left of its attempts." },
  force_replay: {
    title: "Replay with a new budget",
    verb: "Replay",
    does: "Pending letters and those that require review are called again, each with a new budget of attempts.",
  },
  resolve: { title: "Resolve", verb: "Resolve", does: "They are marked as resolved: somebody has seen to it. Nothing is called." },
  discard: { title: "Discard", verb: "Discard", does: "They are marked as rejected: nobody will replay them. Nothing is deleted." },
};

export function isAction(text: string | undefined): text is Action {
  return text !== undefined && text in ACTIONS;
}

export function titleOf(action: string): string {
  return isAction(action) ? ACTIONS[action].title : action;
}

/** The filter in the URL of the letters' list. */
export function filterOf(url: Url): Filter {
  const given = Object.fromEntries(FILTERED.map((name) => [name, url.get(name)]).filter(([, value]) => value !== undefined)) as Record<string, string>;
  const { user_id, ...rest } = given;
  return user_id === undefined ? (rest as Filter) : ({ ...rest, user_id: userOf(user_id) } as Filter);
}

/** The letters' list with a filter. */
export function lettersOf(filter: Readonly<Record<string, unknown>>): string {
  const { id, ...rest } = filter;
  if (typeof id === "string") return to("letters", id);
  const user = rest["user_id"];
  const shown = { ...rest, ...(typeof user === "string" && /^-?\d+$/.test(user) ? { user_id: `"${user}"` } : {}) };
  return to("letters", null, shown as Record<string, string>);
}

/** What a filter says, for people; of an operation on one letter only which one. */
export function wordsOf(filter: Readonly<Record<string, unknown>>): readonly (readonly [name: string, value: string])[] {
  const only = typeof filter["id"] === "string" ? ["id", "domain"] : Object.keys(filter);
  return only.filter((name) => filter[name] !== undefined && filter[name] !== null).map((name) => [name.replaceAll("_", " "), String(filter[name])]);
}

/** 7 and "7" are two users. */
function userOf(text: string): number | string {
  if (/^-?\d{1,15}$/.test(text)) return Number(text);
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
}
