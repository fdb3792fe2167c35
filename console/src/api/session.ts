/** Who is looking, and what they may do. The server decides; the console only greys out and explains. */
import { queryOptions, useQuery, useQueryClient } from "@tanstack/react-query";
import { type Answer, api, sendCsrf } from "@/api/client";

/** `name` is null when somebody has to sign in first; `via` is session, token, loopback or hook. */
export type Session = Answer<"/api/v1/session">;

export const SESSION_KEY = ["session"] as const;
const NOBODY: Session = { name: null, via: null, rights: [], expires_at: null, sign_in_required: true, csrf: "" };

export const sessionQuery = queryOptions({
  queryKey: SESSION_KEY,
  queryFn: async ({ signal }): Promise<Session> => {
    const session = await api.get("/api/v1/session", { signal });
    sendCsrf(session.csrf);
    return session;
  },
  staleTime: 60_000,
  retry: (failures, error) => failures < 2 && !("status" in error && error.status === 401),
});

export function useSession(): Session {
  return useQuery(sessionQuery).data ?? NOBODY;
}

/** Whether they may, and if not, the sentence that says so: `const may = useMay("letters:operate")`. */
export function useMay(right: string): { readonly ok: boolean; readonly why: string | undefined } {
  const session = useSession();
  const ok = session.rights.includes(right);
  return { ok, why: ok ? undefined : `${session.name ?? "You"} may not do this: it needs the right ${right}.` };
}

/** Sign in with a name and a password; raises the server's problem. */
export function useSignIn(): (name: string, password: string) => Promise<void> {
  const queries = useQueryClient();
  return async (name, password) => {
    sendCsrf((await api.post("/api/v1/session", { body: { name, password } })).csrf);
    await queries.invalidateQueries();
  };
}

export function useSignOut(): () => Promise<void> {
  const queries = useQueryClient();
  return async () => {
    await api.delete("/api/v1/session");
    await queries.resetQueries();
  };
}
