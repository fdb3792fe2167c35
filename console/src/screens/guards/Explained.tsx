import { type Answer } from "@/api/client";
import { Facts } from "@/parts/Facts";
import { Text } from "@/parts/Text";
import { flat } from "@/screens/guards/figures";

type Explanation = Answer<"/api/v1/guards/{name}">["refusing"][number];

/** Numbers that a decision rests on, close together. */
export function Numbers({ numbers }: { numbers: Readonly<Record<string, unknown>> }) {
  return (
    <dl className="guards-numbers">
      {flat(numbers).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="num">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Why calls are refused: the rule, the numbers of now, and when a call would pass. */
export function Explained({ explained, brief = false }: { explained: Explanation; brief?: boolean }) {
  return (
    <div className="stack">
      {!brief && <Text value={explained.summary} />}
      <Facts
        facts={[
          ["A call would pass", explained.passes],
          ["Rule", explained.rule],
          ["Cause", explained.cause],
        ]}
      />
      {Object.keys(explained.numbers).length > 0 && (
        <details open={!brief}>
          <summary>numbers of now</summary>
          <Numbers numbers={explained.numbers} />
        </details>
      )}
    </div>
  );
}
