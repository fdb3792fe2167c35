import { type UseQueryResult, useQuery } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Dialog, useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Copy } from "@/parts/Copy";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { cut, seen } from "@/parts/text";
import { useAct } from "@/parts/useAct";
import { ROLES } from "@/screens/access/Users";
import "@/screens/access/access.css";

type AllTokens = Answer<"/api/v1/access/tokens">;
type Token = AllTokens["items"][number];
type Made = Answer<"/api/v1/access/tokens", "post">;
type Role = Answer<"/api/v1/access/users">["items"][number]["role"];

const DAY = 86_400;
const LIVES = [
  [String(DAY), "a day"],
  [String(30 * DAY), "30 days"],
  [String(90 * DAY), "90 days"],
  [String(365 * DAY), "a year"],
  ["", "for ever"],
] as const;

const COLUMNS: readonly Column<Token>[] = [
  { title: "Name", cell: (token) => <Text value={token.name} most={80} />, width: "20%" },
  { title: "State", cell: (token) => <Status state={token.is_live ? "active" : token.revoked_at ? "revoked" : "expired"} />, width: "110px" },
  { title: "May", cell: (token) => <span className="access-scopes">{token.scopes.map((scope) => <Tag key={scope}>{scope}</Tag>)}</span> },
  { title: "By", cell: (token) => <Text value={token.created_by} most={40} />, width: "12%", optional: true },
  { title: "Last used", cell: (token) => <Time at={token.last_used_at} none="never" />, width: "120px", optional: true },
  { title: "Ends", cell: (token) => <Time at={token.revoked_at ?? token.expires_at} none="never" />, width: "120px", optional: true },
  { title: "", label: "Actions", cell: (token) => <Revoke token={token} />, width: "96px", right: true },
];

/** What programs send: made here once, shown once, ended at once. */
export function Tokens({ query }: { query: UseQueryResult<AllTokens> }) {
  const may = useMay("access:admin");
  const [isMaking, setMaking] = useState(false);
  const [made, setMade] = useState<Made>();
  return (
    <Card
      title="Tokens"
      flush
      actions={
        <Button small icon="plus" why={may.why} onClick={() => setMaking(true)}>
          New token
        </Button>
      }
    >
      <Loaded query={query}>
        {(tokens) => (
          <Table
            label="Tokens"
            columns={COLUMNS}
            rows={tokens.items}
            id={(token) => token.id}
            empty={
              <Empty title="No tokens" icon="key">
                A program sends a token to use the API: <code>Authorization: Bearer hf_…</code>
              </Empty>
            }
          />
        )}
      </Loaded>
      {isMaking && (
        <NewToken
          close={() => setMaking(false)}
          done={(token) => {
            setMaking(false);
            setMade(token);
          }}
        />
      )}
      {made && <Secret made={made} close={() => setMade(undefined)} />}
    </Card>
  );
}

function NewToken({ close, done }: { close: () => void; done: (made: Made) => void }) {
  const id = useId();
  const [role, setRole] = useState("viewer");
  const roles = useQuery({ queryKey: ["access", "roles"], queryFn: ({ signal }) => api.get("/api/v1/access/roles", { signal }), staleTime: Number.POSITIVE_INFINITY });
  const create = useAct(
    (body: { name: string; role: Role | null; scopes: string[] | null; expires_in_s: number | null; reason: string }) => api.post("/api/v1/access/tokens", { body }),
    { changes: [["access"]] },
  );
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const life = String(form.get("life"));
    const made = await create.run({
      name: String(form.get("name")),
      role: role === "" ? null : (role as Role),
      scopes: role === "" ? form.getAll("scope").map(String) : null,
      expires_in_s: life === "" ? null : Number(life),
      reason: String(form.get("reason") ?? ""),
    });
    if (made) done(made);
  };
  return (
    <Dialog title="New token" close={close} wide={role === ""}>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <div>
          <label className="label" htmlFor={`${id}-name`}>
            Name
          </label>
          <input id={`${id}-name`} name="name" className="field" required maxLength={100} placeholder="nightly replay" autoComplete="off" />
        </div>
        <div>
          <label className="label" htmlFor={`${id}-role`}>
            May
          </label>
          <select id={`${id}-role`} className="field" value={role} onChange={(event) => setRole(event.target.value)}>
            {ROLES.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
            <option value="">only what is ticked</option>
          </select>
        </div>
        {role === "" && roles.data && (
          <fieldset className="access-grid">
            <legend className="unseen">Rights</legend>
            {roles.data.resources.map((resource) => (
              <div key={resource}>
                <span>{resource}</span>
                {roles.data.acts.map((act) => (
                  <label key={act}>
                    <input type="checkbox" name="scope" value={`${resource}:${act}`} aria-label={`${resource}:${act}`} />
                    {act}
                  </label>
                ))}
              </div>
            ))}
          </fieldset>
        )}
        <div>
          <label className="label" htmlFor={`${id}-life`}>
            Works
          </label>
          <select id={`${id}-life`} name="life" className="field" defaultValue={String(90 * DAY)}>
            {LIVES.map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <div>
          <label className="label" htmlFor={`${id}-reason`}>
            Reason <span className="muted">(optional)</span>
          </label>
          <input id={`${id}-reason`} name="reason" className="field" maxLength={500} autoComplete="off" />
        </div>
        <div className="row ask-buttons">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" look="primary" busy={create.busy}>
            Make token
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Secret({ made, close }: { made: Made; close: () => void }) {
  return (
    <Dialog title="Copy the token now" close={close}>
      <div className="stack">
        <p>It is shown this once, and kept nowhere.</p>
        <div className="access-secret">
          <code data-secret="">{made.secret}</code>
          <Copy text={made.secret} label="Copy the token" />
        </div>
        <div className="row ask-buttons">
          <Button look="primary" onClick={close}>
            I have it
          </Button>
        </div>
      </div>
    </Dialog>
  );
}

function Revoke({ token }: { token: Token }) {
  const may = useMay("access:admin");
  const ask = useAsk();
  const revoke = useAct((reason: string) => api.post("/api/v1/access/tokens/{id}/revoke", { path: { id: token.id }, body: { reason } }), {
    says: `${token.name} is revoked`,
    changes: [["access"]],
  });
  if (!token.is_live) return null;
  const name = cut(seen(token.name), 60);
  return (
    <Button
      small
      look="danger"
      why={may.why}
      busy={revoke.busy}
      aria-label={`Revoke ${name}`}
      onClick={async () => {
        const answer = await ask({ title: `Revoke ${name}?`, body: "Whatever uses it is refused from now on. It cannot be undone.", confirm: "Revoke", danger: true });
        if (answer) await revoke.run(answer.reason);
      }}
    >
      Revoke
    </Button>
  );
}
