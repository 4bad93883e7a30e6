import { type Browser, chromium } from 'playwright-core'
import type { Test } from 'tap'

/**
 * Debian's Chromium without a screen, which asks only for what a test opens. It ends with the test.
 * @param options of its command line, in place of one without QUIC
 */
export async function startBrowser(t: Test, options: readonly string[] = ['--disable-quic']): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      ...options,
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })
  t.teardown(() => browser.close())
  return browser
}
