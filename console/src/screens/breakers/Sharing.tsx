import { type Answer } from "@/api/client";
import { Status } from "@/parts/Badge";
import { Text } from "@/parts/Text";
import { Time } from "@/parts/Time";
import { plural } from "@/parts/text";

type Shared = Answer<"/api/v1/breakers">["sharing"];

/** Whether this process hears of the others: a line, and the words of the error where it does not. */
export function Sharing({ sharing }: { sharing: Shared }) {
  if (!sharing.shared.length) return <p className="muted breakers-sharing">This process shares no breaker of its own; it shows those of the store.</p>;
  return (
    <p className="breakers-sharing">
      <Status state={sharing.is_connected ? "live" : "degraded"} />
      <span>
        {sharing.is_connected ? `${plural(sharing.shared.length, "breaker")} of this process shared with the others` : "The store does not answer: this process decides alone"}
        {sharing.since && (
          <>
            {" "}
            since <Time at={sharing.since} />
          </>
        )}
        {sharing.quorum > 1 && `; ${sharing.quorum} processes must see an outage before all of them open`}.
      </span>
      {sharing.error && <Text value={sharing.error} most={200} />}
    </p>
  );
}
