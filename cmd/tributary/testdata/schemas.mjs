// Compiles JSON Schemas with Ajv in strict mode and checks the AsyncAPI document with the official
// parser. Arguments: the folder of the packages, and of the documents. Prints every complaint.
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [packages, documents] = process.argv.slice(2);
const require = createRequire(join(packages, "node_modules", "/"));
const Ajv = require("ajv/dist/2020").default;
const formats = require("ajv-formats").default;
const { Parser } = require("@asyncapi/parser");

const strict = () => formats(new Ajv({ strict: true, allErrors: true }));
const complain = (name, text) => console.log(`${name}: ${text}`);
const attempt = (name, work) => {
  try {
    return work();
  } catch (error) {
    complain(name, error.message);
  }
};

for (const name of readdirSync(documents)) {
  const text = readFileSync(join(documents, name), "utf8");
  if (name !== "asyncapi.json") {
    attempt(name, () => {
      const ajv = strict();
      if (!ajv.validateSchema(JSON.parse(text))) complain(name, ajv.errorsText());
      ajv.compile(JSON.parse(text));
    });
    continue;
  }
  const { document, diagnostics } = await new Parser().parse(text);
  if (!document) complain(name, "the parser returns no document");
  for (const d of diagnostics) {
    // A newer minor version of AsyncAPI is no fault of the document.
    if (d.code !== "asyncapi-latest-version") complain(name, `${d.path.join("/")}: ${d.message}`);
  }
  // Payloads and headers, with the schemas of the document as definitions.
  const { components } = JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/"));
  for (const [title, message] of Object.entries(components.messages)) {
    for (const part of ["payload", "headers"]) {
      attempt(`${name} ${title} ${part}`, () => strict().compile({ $defs: components.schemas, ...message[part] }));
    }
  }
}
