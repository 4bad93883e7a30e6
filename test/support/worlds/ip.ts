import { execFileSync } from 'node:child_process'

/** Runs ip(8). @returns what it prints */
export const ip = (...args: string[]): string =>
  execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe', timeout: 10_000 })
