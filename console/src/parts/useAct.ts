import { type QueryKey, useMutation, useQueryClient } from "@tanstack/react-query";
import { useSay } from "@/parts/Toasts";

interface Options<In, Out> {
  /** Said when it worked; nothing is said without it. */
  says?: string | ((answer: Out, given: In) => string);
  /** What is no longer true afterwards: these queries are asked again. */
  changes?: readonly QueryKey[];
}

/**
 * Something that changes something: `const replay = useAct((id: string) => api.post(…), { says: "Replayed", changes: [["letters"]] })`.
 * `replay.run(id)` never throws: a failure is a toast with the server's words, and the answer is undefined.
 */
export function useAct<In, Out>(act: (given: In) => Promise<Out>, options: Options<In, Out> = {}) {
  const queries = useQueryClient();
  const say = useSay();
  const mutation = useMutation<Out, Error, In>({
    mutationFn: act,
    onSuccess: (answer, given) => {
      if (options.says) say.done(typeof options.says === "function" ? options.says(answer, given) : options.says);
    },
    onError: (error) => say.failed(error),
    // Also after a failure: perhaps it was refused because what is shown is old.
    onSettled: () => Promise.all((options.changes ?? []).map((queryKey) => queries.invalidateQueries({ queryKey }))),
  });
  return {
    busy: mutation.isPending,
    run: (given: In): Promise<Out | undefined> => mutation.mutateAsync(given).catch(() => undefined),
  };
}
