import { type Browser, chromium } from 'playwright-core'
import type { Test } from 'tap'

/** Debian's Chromium without a screen, which asks only for what a test opens. It ends with the test. */
export async function startBrowser(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })
  t.teardown(() => browser.close())
  return browser
}
