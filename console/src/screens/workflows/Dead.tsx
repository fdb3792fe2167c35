import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { type Answer, api } from "@/api/client";
import { useMay } from "@/api/session";
import { Go } from "@/app/Go";
import { to, useUrl } from "@/app/url";
import { Dialog, useAsk } from "@/parts/Ask";
import { Button } from "@/parts/Button";
import { Card } from "@/parts/Card";
import { Facts } from "@/parts/Facts";
import { Json } from "@/parts/Json";
import { Pager } from "@/parts/Pager";
import { Empty, Loaded } from "@/parts/States";
import { type Column, Table } from "@/parts/Table";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { useAct } from "@/parts/useAct";

type Item = Answer<"/api/v1/workflows/dead">["items"][number];

/** Items and messages that nobody could do anything with. */
export function Dead() {
  const url = useUrl();
  const [shown, setShown] = useState<Item>();
  const query = { workflow: url.get("workflow"), after: url.get("after"), limit: 50 };
  const items = useQuery({
    queryKey: ["workflows", "dead", query],
    queryFn: ({ signal }) => api.get("/api/v1/workflows/dead", { query, signal }),
    placeholderData: (before) => before,
  });
  const columns: readonly Column<Item>[] = [
    {
      title: "What",
      cell: (one) => (
        <button type="button" className="workflows-link" onClick={() => setShown(one)}>
          <Text value={one.type} most={60} />
        </button>
      ),
      width: "20%",
    },
    { title: "Workflow", cell: (one) => <Go to={to("workflows", one.workflow_id)}>{<Text value={one.workflow_id} most={30} mono />}</Go>, width: "22%" },
    { title: "Error", cell: (one) => <Text value={one.error} most={200} />, optional: true },
    { title: "Tries", cell: (one) => `${one.attempts} of ${one.max_attempts}`, width: "80px", right: true, optional: true },
    { title: "Since", cell: (one) => <Time at={one.dead_at} />, width: "110px", right: true },
  ];
  return (
    <div className="stack">
      <Card flush>
        <Loaded query={items}>
          {(page) => (
            <Table
              label="Dead items"
              columns={columns}
              rows={page.items}
              id={(one) => one.id}
              stale={items.isPlaceholderData}
              empty={
                <Empty title="No dead items">
                  They appear when a message for a workflow, or a step that its program cannot even begin, has failed as often as it may. What fails in a task of yours is a failed stage, and a letter.
                </Empty>
              }
            />
          )}
        </Loaded>
      </Card>
      <Pager next={items.data?.next} shown={items.data?.items.length} />
      {shown && <One item={shown} close={() => setShown(undefined)} />}
    </div>
  );
}

function One({ item, close }: { item: Item; close: () => void }) {
  const may = useMay("workflows:operate");
  const mayReveal = useMay("workflows:reveal");
  const mayForget = useMay("workflows:admin");
  const ask = useAsk();
  const path = { item: item.id };
  const replay = useAct((reason: string) => api.post("/api/v1/workflows/dead/{item}/replay", { path, body: { reason } }), { says: "It is tried again", changes: [["workflows"]] });
  const discard = useAct((reason: string) => api.post("/api/v1/workflows/dead/{item}/discard", { path, body: { reason } }), { says: "It is forgotten", changes: [["workflows"]] });
  const reveal = useAct((reason: string) => api.post("/api/v1/workflows/dead/{item}/reveal", { path, body: { reason } }));
  const [open, setOpen] = useState<Item>(item);
  return (
    <Dialog title={`Dead item: ${item.type}`} close={close} wide>
      <div className="stack">
        <Facts
          facts={[
            ["Id", item.id],
            ["Workflow", item.workflow_id],
            ["Stage", item.stage],
            ["Error", item.error],
            ["Tries", `${item.attempts} of ${item.max_attempts}`],
            ["Made", <Time at={item.created_at} absolute />],
            ["Dead since", <Time at={item.dead_at} absolute />],
          ]}
        />
        <Json value={open.payload} label="What it was to do" />
        <div className="row">
          <Button
            icon="replay"
            look="primary"
            why={may.why}
            busy={replay.busy}
            onClick={async () => {
              const answer = await ask({ title: "Have it tried again?", body: "A worker takes it up from its first attempt.", confirm: "Try again", reason: "may" });
              if (answer && (await replay.run(answer.reason))) close();
            }}
          >
            Try again
          </Button>
          <Button
            icon="bin"
            look="danger"
            why={mayForget.why}
            busy={discard.busy}
            onClick={async () => {
              const answer = await ask({ title: "Forget it?", body: "It is deleted, and what it was to do is not done.", confirm: "Forget", danger: true, reason: "must" });
              if (answer && (await discard.run(answer.reason))) close();
            }}
          >
            Forget
          </Button>
          <Button
            icon="eye"
            why={mayReveal.why}
            busy={reveal.busy}
            onClick={async () => {
              const answer = await ask({ title: "Reveal what is masked?", body: "Who looked, and why, is in the audit trail.", confirm: "Reveal", reason: "must" });
              const found = answer && (await reveal.run(answer.reason));
              if (found) setOpen(found);
            }}
          >
            Reveal
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
