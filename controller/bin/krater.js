#!/usr/bin/env node
import { existsSync } from 'node:fs'

const program = new URL('../../dist/krater.js', import.meta.url)
if (existsSync(program)) {
  await import(program.href)
} else {
  process.stderr.write('Krater is not built yet. Run `npm start`, `npm run demo` or `node scripts/prepare.js`.\n')
  process.exitCode = 1
}
