import type { UseQueryResult } from "@tanstack/react-query";
import { type Answer, api } from "@/api/client";
import { SESSION_KEY, useMay, useSession } from "@/api/session";
import { type AskField, useAsk } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { cut, plural, seen } from "@/parts/text";
import { useAct } from "@/parts/useAct";
import "@/screens/access/access.css";

type AllUsers = Answer<"/api/v1/access/users">;
export type User = AllUsers["items"][number];
type Role = User["role"];

export const ROLES = [
  ["viewer", "viewer: looks"],
  ["operator", "operator: also replays, retries, steers"],
  ["admin", "admin: everything, also this page"],
] as const;

const CHANGES = [["access"], SESSION_KEY];
const NEW_PASSWORD: AskField = { name: "password", label: "Password", type: "password", must: true, least: 12, hint: "At least 12 characters.", autoComplete: "new-password" };

/** People, and what they may do. */
export function Users({ query }: { query: UseQueryResult<AllUsers> }) {
  const may = useMay("access:admin");
  const { via, name: me } = useSession();
  const ask = useAsk();
  const add = useAct(
    (given: { name: string; password: string; role: Role; reason: string }) =>
      api.post("/api/v1/access/users/{name}", { path: { name: given.name }, body: { password: given.password, role: given.role, reason: given.reason } }),
    { says: (user) => `${user.name} can sign in`, changes: CHANGES },
  );
  const isFirst = query.data?.items.length === 0;
  const begin = async () => {
    const answer = await ask({
      title: "Add a user",
      body: isFirst && via === "loopback" ? "Once there is a user, everybody has to sign in. The first one should be an admin." : undefined,
      confirm: "Add user",
      fields: [
        { name: "name", label: "Name", must: true, autoComplete: "off" },
        NEW_PASSWORD,
        { name: "role", label: "Role", type: "select", options: ROLES, value: isFirst ? "admin" : "viewer" },
      ],
    });
    if (answer) await add.run({ name: answer["name"] ?? "", password: answer["password"] ?? "", role: answer["role"] as Role, reason: answer.reason });
  };
  return (
    <Card
      title="Users"
      flush
      actions={
        <Button small icon="plus" why={may.why} busy={add.busy} onClick={() => void begin()}>
          Add user
        </Button>
      }
    >
      <Loaded query={query}>
        {(users) => (
          <Table
            label="Users"
            columns={columns(me)}
            rows={users.items}
            id={(user) => user.name}
            empty={
              <Empty title="No users" icon="people">
                Whoever is on this machine may do everything, and nobody else can reach the server. Add a user before you listen on another address.
              </Empty>
            }
          />
        )}
      </Loaded>
    </Card>
  );
}

function columns(me: string | null): Column<User>[] {
  return [
    { title: "Name", cell: (user) => <><Text value={user.name} most={80} />{user.name === me && <span className="muted"> (you)</span>}</>, width: "22%" },
    { title: "Role", cell: (user) => <Tag tone={user.role === "admin" ? "warn" : user.role === "operator" ? "busy" : "quiet"}>{user.role}</Tag>, width: "100px" },
    { title: "State", cell: (user) => <Status state={user.is_disabled ? "disabled" : "enabled"} />, width: "110px", optional: true },
    { title: "Added", cell: (user) => <Time at={user.created_at} />, width: "120px", optional: true },
    { title: "By", cell: (user) => <Text value={user.created_by} most={60} />, optional: true },
    { title: "Password since", cell: (user) => <Time at={user.password_changed_at} />, width: "120px", optional: true },
    { title: "", label: "Actions", cell: (user) => <Actions user={user} />, width: "252px", right: true },
  ];
}

function Actions({ user }: { user: User }) {
  const may = useMay("access:admin");
  const ask = useAsk();
  const path = { name: user.name };
  const who = cut(seen(user.name), 60);
  const role = useAct((body: { role: Role; force: boolean; reason: string }) => api.post("/api/v1/access/users/{name}/role", { path, body }), {
    says: (now) => `${who} is ${now.role} now`,
    changes: CHANGES,
  });
  const password = useAct((body: { password: string; reason: string }) => api.post("/api/v1/access/users/{name}/password", { path, body }), {
    says: `${who} has a new password, and is signed out everywhere`,
    changes: CHANGES,
  });
  const enable = useAct((reason: string) => api.post("/api/v1/access/users/{name}/enable", { path, body: { reason } }), { says: `${who} can sign in again`, changes: CHANGES });
  const end = useAct(
    ({ how, ...body }: { how: "disable" | "remove"; force: boolean; reason: string }) =>
      how === "disable" ? api.post("/api/v1/access/users/{name}/disable", { path, body }) : api.post("/api/v1/access/users/{name}/remove", { path, body }),
    {
      says: (gone, { how }) =>
        `${who} is ${how === "disable" ? "disabled" : "removed"}${gone.live_tokens.length ? `; ${plural(gone.live_tokens.length, "token")} of theirs still work` : ""}`,
      changes: CHANGES,
    },
  );
  const force: AskField = { name: "force", label: "Also if this is the last admin", type: "checkbox" };
  const askRole = async () => {
    const answer = await ask({
      title: `Role of ${who}`,
      body: "Their sessions end, and they sign in again.",
      confirm: "Change role",
      fields: [{ name: "role", label: "Role", type: "select", options: ROLES, value: user.role }, force],
    });
    if (answer) await role.run({ role: answer["role"] as Role, force: answer["force"] === "on", reason: answer.reason });
  };
  const askPassword = async () => {
    const answer = await ask({ title: `New password for ${who}`, body: "Their sessions end.", confirm: "Set password", fields: [NEW_PASSWORD] });
    if (answer) await password.run({ password: answer["password"] ?? "", reason: answer.reason });
  };
  const askEnd = async (how: "disable" | "remove") => {
    const answer = await ask({
      title: how === "disable" ? `Disable ${who}?` : `Remove ${who}?`,
      body: "Their sessions end at once. Tokens that they made go on; revoke those that should not.",
      confirm: how === "disable" ? "Disable" : "Remove",
      danger: true,
      fields: [force],
    });
    if (answer) await end.run({ how, force: answer["force"] === "on", reason: answer.reason });
  };
  return (
    <span className="access-actions">
      <Button small look="plain" why={may.why} busy={role.busy} onClick={() => void askRole()} aria-label={`Role of ${who}`}>
        Role
      </Button>
      <Button small look="plain" why={may.why} busy={password.busy} onClick={() => void askPassword()} aria-label={`Password of ${who}`}>
        Password
      </Button>
      {user.is_disabled ? (
        <Button small look="plain" why={may.why} busy={enable.busy} onClick={() => void enable.run("")} aria-label={`Enable ${who}`}>
          Enable
        </Button>
      ) : (
        <Button small look="plain" why={may.why} busy={end.busy} onClick={() => void askEnd("disable")} aria-label={`Disable ${who}`}>
          Disable
        </Button>
      )}
      <Button small look="danger" icon="bin" why={may.why} busy={end.busy} onClick={() => void askEnd("remove")} aria-label={`Remove ${who}`} />
    </span>
  );
}
