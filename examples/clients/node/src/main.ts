/** The client program: does its steps one after the other and says on stdout, in a JSON line each, how they went. */

import { parseArgs } from "node:util";
import { asking, pictures, registering, watching } from "./steps/index.js";
import { clients, type Story } from "./story.js";

const STEPS = new Map<string, (story: Story) => Promise<string>>([
  ["register", registering.register],
  ["race", registering.race],
  ["mismatch", registering.mismatch],
  ["watch", watching.watch],
  ["compatibility", asking.compatibility],
  ["rooms", asking.rooms],
  ["picture", pictures.picture],
  ["neighbours", pictures.neighbours],
  ["cancel", pictures.cancel],
  ["deadline", asking.deadline],
]);

const USAGE = `usage: main.js --bootstrap HOST:PORT --preprocess HOST:PORT --pictures DIR [--only STEP,...]
steps: ${[...STEPS.keys()].join(", ")}
`;

const EXIT_STEP_FAILED = 1;
const EXIT_USAGE = 2;

async function run(story: Story, steps: Iterable<[string, (story: Story) => Promise<string>]>): Promise<boolean> {
  let allOk = true;
  for (const [step, act] of steps) {
    const started = performance.now();
    const [ok, detail] = await act(story).then(
      (detail) => [true, detail] as const,
      (error: unknown) => [false, error instanceof Error ? error.message : String(error)] as const,
    );
    allOk &&= ok;
    const seconds = Math.round(performance.now() - started) / 1000;
    say({ step, ok, seconds, detail });
  }
  return allOk;
}

function say(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** What the command line asks for; undefined if it is none. */
function asked(): { story: Story; steps: [string, (story: Story) => Promise<string>][] } | undefined {
  const text = { type: "string" } as const;
  try {
    const { values } = parseArgs({ options: { bootstrap: text, preprocess: text, pictures: text, only: text } });
    const { bootstrap, preprocess, pictures } = values;
    const only = values.only?.split(",") ?? [...STEPS.keys()];
    const unknown = only.filter((step) => !STEPS.has(step));
    if (!bootstrap || !preprocess || !pictures || unknown.length > 0) return undefined;
    const waiting = (step: string, event: string) => {
      say({ step, waiting: event });
    };
    const story = { ...clients(bootstrap, preprocess), pictures, waiting };
    return { story, steps: [...STEPS].filter(([step]) => only.includes(step)) };
  } catch {
    return undefined;
  }
}

const todo = asked();
if (!todo) {
  process.stderr.write(USAGE);
  process.exit(EXIT_USAGE);
}
process.exit((await run(todo.story, todo.steps)) ? 0 : EXIT_STEP_FAILED);
