// Runs SQL with DuckDB: reads [{name, sql}] in JSON from standard input, and prints {name: rows} of those that
// return rows. The folder of the packages is the first argument.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

const { DuckDBInstance } = createRequire(join(process.argv[2], 'package.json'))('@duckdb/node-api');
const connection = await (await DuckDBInstance.create(':memory:')).connect();
const answers = {};
for (const { name, sql, script } of JSON.parse(await text(process.stdin))) {
  const start = performance.now();
  if (script) {
    await connection.run(sql);
    continue;
  }
  const reader = await connection.runAndReadAll(sql);
  answers[name] = { rows: reader.getRowObjectsJson(), ms: Math.round(performance.now() - start) };
}
console.log(JSON.stringify(answers));
