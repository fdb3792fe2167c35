import "@/app/shell.css";
import { useQuery } from "@tanstack/react-query";
import { Outlet, useLocation } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { type Answer, api } from "@/api/client";
import { asProblem } from "@/api/problem";
import { SESSION_KEY, sessionQuery, useSession, useSignOut } from "@/api/session";
import { Go, useGo } from "@/app/Go";
import { Jump } from "@/app/Jump";
import { KEYS, useKeys } from "@/app/keys";
import { Login } from "@/app/Login";
import { Mark } from "@/app/Mark";
import { SCREENS, screenAt } from "@/app/screens";
import { chooseTheme, THEMES, useTheme } from "@/app/theme";
import { useConnection, useLive } from "@/live/live";
import { stream } from "@/live/stream";
import { Dialog, useAsk } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { Icon } from "@/parts/Icon";
import { Failure } from "@/parts/States";
import { cut, plural, seen } from "@/parts/text";
import { useAct } from "@/parts/useAct";

/** Everything around a screen; and instead of it, the question who is there. */
export function Shell() {
  const session = useQuery(sessionQuery);
  if (session.isPending) return <div className="shell-wait" role="status" aria-label="Loading" />;
  if (session.isError && asProblem(session.error).status === 401) return <Login />;
  if (session.isError)
    return (
      <main className="shell-alone">
        <Failure error={session.error} retry={() => void session.refetch()} />
      </main>
    );
  return session.data.name === null ? <Login /> : <Frame />;
}

function Frame() {
  const path = useLocation({ select: (location) => location.pathname });
  const here = screenAt(path);
  const go = useGo();
  const [dialog, setDialog] = useState<"keys" | "jump">();
  const [isOpen, setOpen] = useState(false);
  useKeys({ go, help: () => setDialog("keys"), jump: () => setDialog("jump") });
  useEffect(() => {
    stream.start();
    return () => stream.stop();
  }, []);
  useEffect(() => setOpen(false), [path]);
  useEffect(() => {
    document.title = here ? `${here.title} · Holdfast` : "Holdfast";
  }, [here]);
  return (
    <div className={isOpen ? "shell is-open" : "shell"}>
      <a className="skip" href="#main" onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <Side here={here?.name} close={() => setOpen(false)} />
      <div className="shell-column">
        <header className="top">
          <Button look="plain" icon="menu" className="top-menu" aria-label="Navigation" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} />
          <button type="button" className="top-jump" onClick={() => setDialog("jump")}>
            <Icon name="search" size={14} />
            <span>Jump to…</span>
            <kbd aria-hidden="true">Ctrl K</kbd>
          </button>
          <span className="top-gap" />
          <Connection />
          <Theme />
          <Button look="plain" aria-label="Keys" title="Keys (?)" onClick={() => setDialog("keys")} className="top-help">
            ?
          </Button>
          <Person />
        </header>
        <main id="main" tabIndex={-1}>
          <Outlet />
        </main>
      </div>
      {dialog === "keys" && <Keys close={() => setDialog(undefined)} />}
      {dialog === "jump" && <Jump close={() => setDialog(undefined)} />}
    </div>
  );
}

function Side({ here, close }: { here: string | undefined; close: () => void }) {
  const session = useSession();
  const status = useServerStatus();
  return (
    <>
      <nav className="side" aria-label="Screens">
        <Go to="/overview" className="side-name">
          <Mark />
          Holdfast
        </Go>
        <ul>
          {SCREENS.filter((screen) => session.rights.includes(screen.right)).map((screen) => (
            <li key={screen.name}>
              {screen.group && <div className="side-group">{screen.group}</div>}
              <Go to={`/${screen.name}`} className="side-link" aria-current={here === screen.name ? "page" : undefined} title={`g ${screen.key}`} onClick={close}>
                <Icon name={screen.icon} />
                {screen.title}
              </Go>
            </li>
          ))}
        </ul>
        {status && (
          <div className="side-foot">
            <div className="mono" dir="ltr" title={seen(status.store)}>
              {cut(seen(shortened(status.store)), 60)}
            </div>
            <div>Holdfast {status.version}</div>
          </div>
        )}
      </nav>
      <div className="side-shade" onClick={close} aria-hidden="true" />
    </>
  );
}

const SAYS = {
  live: ["Live", "What changes is shown at once."],
  connecting: ["Connecting", "Waiting for the server's stream of changes."],
  resting: ["Resting", "Nothing is asked while nobody looks."],
  lost: ["Offline", "The server's stream is gone. The page asks every five seconds, and tries again."],
} as const;

function Connection() {
  const state = useConnection();
  const [word, why] = SAYS[state];
  return (
    <span className={`live live-${state}`} title={why} role="status" data-live={state}>
      <span className="live-dot" aria-hidden="true" />
      <span className="live-word">{word}</span>
    </span>
  );
}

function Theme() {
  const theme = useTheme();
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "system";
  const icon = theme === "light" ? "sun" : theme === "dark" ? "moon" : "screen";
  return <Button look="plain" icon={icon} aria-label={`Theme: ${theme}. Change to ${next}`} title={`Theme: ${theme}`} onClick={() => chooseTheme(next)} />;
}

function Person() {
  const session = useSession();
  const signOut = useSignOut();
  const ask = useAsk();
  const password = useAct((body: { old: string; new: string }) => api.post("/api/v1/session/password", { body }), {
    says: "Sign in with the new password",
    changes: [SESSION_KEY],
  });
  const change = async () => {
    const answer = await ask({
      title: "Change your password",
      body: "Every session of yours ends, this one too.",
      confirm: "Change password",
      reason: "no",
      fields: [
        { name: "old", label: "Password now", type: "password", must: true, autoComplete: "current-password" },
        { name: "new", label: "New password", type: "password", must: true, least: 12, hint: "At least 12 characters.", autoComplete: "new-password" },
      ],
    });
    if (answer) await password.run({ old: answer["old"] ?? "", new: answer["new"] ?? "" });
  };
  const name = seen(session.name ?? "");
  return (
    <details className="person" onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && (event.currentTarget.open = false)}>
      <summary aria-label={`Signed in as ${cut(name, 60)}`}>
        <span className="person-name">{cut(name, 24)}</span>
        <Icon name="down" size={12} />
      </summary>
      <div className="person-menu">
        <p>
          <b className="wrap">{cut(name, 100)}</b>
        </p>
        <p className="muted">
          {session.via === "loopback" ? "Nobody has to sign in on this machine." : `Known by ${session.via ?? ""}, with ${plural(session.rights.length, "right")}.`}
        </p>
        {session.via === "session" && (
          <>
            <Button small onClick={() => void change()}>
              Change password
            </Button>
            <Button small onClick={() => void signOut()}>
              Sign out
            </Button>
          </>
        )}
      </div>
    </details>
  );
}

function Keys({ close }: { close: () => void }) {
  return (
    <Dialog title="Keys" close={close}>
      <dl className="keys">
        {[...KEYS, ...SCREENS.map((screen) => [`g ${screen.key}`, screen.title] as const)].map(([keys, does]) => (
          <div key={keys}>
            <dt>
              {keys.split(/\s+/).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

/** `postgresql host/shop` of a URL: enough to know which store this is. */
function shortened(url: string): string {
  const [scheme = "", rest = ""] = url.split("://");
  const parts = (rest.split("@").at(-1) ?? "").split("?")[0]?.split("/").filter(Boolean) ?? [];
  return `${scheme} ${scheme.startsWith("sqlite") ? (parts.at(-1) ?? "") : parts.join("/")}`;
}

function useServerStatus(): Answer<"/api/v1/status"> | undefined {
  useLive([], [["status"]]);
  return useQuery({ queryKey: ["status"], queryFn: ({ signal }) => api.get("/api/v1/status", { signal }), staleTime: 60_000 }).data;
}
