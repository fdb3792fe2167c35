import type { ComponentProps } from "react";
import { useMay } from "@/api/session";
import { useUrl } from "@/app/url";
import { Button } from "@/parts/Button";
import { Old } from "@/parts/Old";

const USUAL_DAYS = 30;

type Props = Omit<ComponentProps<typeof Old>, "title" | "verb" | "days" | "forGood" | "close">;

/** A list's button that deletes what is over for long. */
export function DeleteOld({ noun, right, ...rest }: Props) {
  const url = useUrl();
  const may = useMay(right);
  const after = url.get("after");
  return (
    <>
      <Button icon="bin" why={may.why} onClick={() => url.set({ old: "prune", after })}>
        Delete old…
      </Button>
      {url.get("old") === "prune" && (
        <Old
          {...rest}
          title={`Delete old ${noun[1]}`}
          right={right}
          verb={["Delete", "Deleted", "would be deleted"]}
          noun={noun}
          days={USUAL_DAYS}
          forGood
          close={() => url.set({ old: null, after }, { replace: true })}
        />
      )}
    </>
  );
}
