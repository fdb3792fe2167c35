import "@/screens/bulk/bulk.css";
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { api } from "@/api/client";
import { useMay } from "@/api/session";
import { useGo } from "@/app/Go";
import { to } from "@/app/url";
import { Dialog } from "@/parts/Ask";
import { Status, Tag } from "@/parts/Badge";
import { Button } from "@/parts/Button";
import { Loaded } from "@/parts/States";
import { Text } from "@/parts/Text";
import { plural, whole } from "@/parts/text";
import { Time } from "@/parts/Time";
import { useAct } from "@/parts/useAct";
import { ACTIONS, type Action, type Filter, wordsOf } from "@/screens/bulk/filter";

const TYPED_FROM = 10;

/** Starts an operation on every letter that a filter finds: counted first, and confirmed with the count that was shown. */
export function StartBulk({ filter, action, choose, close }: { filter: Filter; action: Action; choose: (action: Action) => void; close: () => void }) {
  const id = useId();
  const go = useGo();
  const may = useMay("bulk:operate");
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const preview = useQuery({
    queryKey: ["bulk", "preview", action, filter],
    queryFn: ({ signal }) => api.post("/api/v1/bulk/preview", { body: { action, filter }, signal }),
    gcTime: 0,
  });
  const total = preview.data?.total ?? 0;
  const start = useAct(
    () => api.post("/api/v1/bulk", { body: { action, filter: preview.data?.filter as Filter, confirm_count: total, reason } }),
    { says: (begun) => `Started: ${ACTIONS[action].verb.toLowerCase()} ${plural(begun.total, "letter")}`, changes: [["bulk"], ["letters"]] },
  );
  const why = may.why ?? barred(preview.isPending, total, reason, typed);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (why !== undefined || start.busy) return;
    const begun = await start.run(undefined);
    if (begun) go(to("bulk", begun.id));
  };
  return (
    <Dialog title="Act on every letter that fits" close={close} wide>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <fieldset className="bulk-actions">
          <legend className="label">What to do</legend>
          {Object.entries(ACTIONS).map(([name, one]) => (
            <label key={name} className="bulk-action">
              <input type="radio" name={`${id}-action`} checked={name === action} onChange={() => choose(name as Action)} />
              <span>
                <strong>{one.title}</strong>
                <span className="muted">{one.does}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <div className="row">
          <span className="muted">Letters:</span>
          {wordsOf(filter).map(([name, value]) => (
            <Tag key={name}>
              {name} <Text value={value} most={40} />
            </Tag>
          ))}
          {!wordsOf(filter).length && <Tag tone="warn">no filter: all of them</Tag>}
        </div>
        <Loaded query={preview} lines={4}>
          {(found) => (
            <div className="bulk-preview stack" data-total={found.total}>
              <p>
                <strong className="num">{plural(found.total, "letter")}</strong> would be touched
                {found.total > 0 && (
                  <>
                    : {Object.entries(found.by_domain).slice(0, 5).map(([name, count], at) => (
                      <span key={name}>
                        {at > 0 && ", "}
                        {whole(count)} of <Text value={name} most={40} />
                      </span>
                    ))}
                    {Object.keys(found.by_domain).length > 5 && ` and ${Object.keys(found.by_domain).length - 5} more domains`}
                  </>
                )}
                . What fails from now on is not part of it.
              </p>
              {found.total > 0 && (
                <div>
                  <h3>The oldest of them</h3>
                  <ul className="bulk-sample">
                    {found.sample.map((letter) => (
                      <li key={letter.id}>
                        <Status state={letter.status} />
                        <Text value={letter.domain} most={40} />
                        <span className="bulk-error muted">
                          <Text value={letter.error_message || letter.failure_type} most={160} />
                        </span>
                        <Time at={letter.created_at} />
                      </li>
                    ))}
                  </ul>
                </div>
              )}
            </div>
          )}
        </Loaded>
        <div>
          <label className="label" htmlFor={`${id}-reason`}>
            Reason
          </label>
          <textarea id={`${id}-reason`} className="field" rows={2} maxLength={500} dir="auto" required value={reason} onChange={(event) => setReason(event.target.value)} />
          <p className="hint">It is kept with the operation and goes into the audit trail, with your name.</p>
        </div>
        {total >= TYPED_FROM && (
          <div>
            <label className="label" htmlFor={`${id}-count`}>
              Type {whole(total)} to confirm
            </label>
            <input id={`${id}-count`} className="field num" inputMode="numeric" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
          </div>
        )}
        <div className="row ask-buttons">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" look={action === "discard" ? "danger primary" : "primary"} busy={start.busy} why={why}>
            {`${ACTIONS[action].verb} ${plural(total, "letter")}`}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** Why it cannot be started yet. */
function barred(isPending: boolean, total: number, reason: string, typed: string): string | undefined {
  if (isPending) return "The letters are being counted.";
  if (!total) return "No letter fits, so there is nothing to do.";
  if (!reason.trim()) return "Say why first.";
  if (total >= TYPED_FROM && typed.replace(/[\s,.]/g, "") !== String(total)) return `Type ${total} first.`;
  return undefined;
}
