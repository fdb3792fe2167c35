/** The API's one door: typed by the OpenAPI file, problems as errors, the CSRF value with everything that changes. */
import { address } from "@/api/base";
import { Problem } from "@/api/problem";
import type { paths } from "@/api/schema";

type Method = "get" | "post" | "put" | "patch" | "delete";
type PathWith<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, { responses: unknown }> ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type Parameters<O, K extends "path" | "query"> = O extends { parameters: Partial<Record<K, infer V>> } ? V : never;
type Content<T> = T extends { content: infer C } ? C[keyof C] : undefined;
type Body<O> = O extends { requestBody?: infer B } ? Content<NonNullable<B>> : never;
type Good = 200 | 201 | 202 | 204;

/** What the API answers to a method of a path: `Answer<"/api/v1/letters">`. */
export type Answer<P extends keyof paths, M extends Method = "get"> =
  Operation<P, M> extends { responses: infer R } ? Content<R[keyof R & Good]> : never;

type Given<O> = {
  signal?: AbortSignal;
  query?: Parameters<O, "query">;
} & ([NonNullable<Parameters<O, "path">>] extends [never] ? { path?: undefined } : { path: Parameters<O, "path"> }) &
  ([NonNullable<Body<O>>] extends [never] ? { body?: undefined } : { body: Body<O> });

type Call<M extends Method> = <P extends PathWith<M>>(
  path: P,
  ...given: Record<string, never> extends Given<Operation<P, M>>
    ? [given?: Given<Operation<P, M>>]
    : [given: Given<Operation<P, M>>]
) => Promise<Answer<P, M>>;

interface Request {
  path?: Readonly<Record<string, unknown>>;
  query?: Readonly<Record<string, unknown>>;
  body?: unknown;
  signal?: AbortSignal;
}

const shield: { csrf: string | undefined; onLost: () => void } = { csrf: undefined, onLost: () => undefined };

/** Send this value with everything that changes something. The session tells it. */
export function sendCsrf(value: string | undefined): void {
  shield.csrf = value;
}

/** What to do when the server no longer knows who asks. */
export function whenLoggedOut(act: () => void): void {
  shield.onLost = act;
}

export const api: { readonly [M in Method]: Call<M> } = {
  get: call("get") as Call<"get">,
  post: call("post") as Call<"post">,
  put: call("put") as Call<"put">,
  patch: call("patch") as Call<"patch">,
  delete: call("delete") as Call<"delete">,
};

/** `ask("get", "/api/v1/…")` without types, for what the OpenAPI file does not describe. Prefer `api`. */
export async function ask(method: Method, path: string, given: Request = {}): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (given.body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "get" && shield.csrf) headers["X-Holdfast-CSRF"] = shield.csrf;
  let response: Response;
  try {
    response = await fetch(address(filled(path, given.path) + queryString(given.query)), {
      method: method.toUpperCase(),
      headers,
      credentials: "same-origin",
      body: given.body === undefined ? null : JSON.stringify(given.body),
      signal: given.signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, { message: "No answer. Is `holdfast serve` still running, and the network up?" });
  }
  if (response.status === 204) return undefined;
  const document: unknown = await response.json().catch(() => undefined);
  if (response.ok) return document;
  if (response.status === 401) shield.onLost();
  const told = typeof document === "object" && document !== null ? (document as Record<string, unknown>) : {};
  throw new Problem(response.status, told, Number(response.headers.get("Retry-After")) || undefined);
}

function call(method: Method) {
  return (path: string, given: Request = {}) => ask(method, path, given);
}

function filled(path: string, values: Request["path"]): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values?.[name] ?? "")));
}

function queryString(values: Request["query"]): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {}))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined && one !== null && one !== "") search.append(name, String(one));
  return search.size ? `?${search}` : "";
}
