/* What NVML says in words: addresses, brands, architectures, texts in buffers that are too small. */
#include "client/nvml/nvml.h"

#include <criterion/criterion.h>

Test(nvml_text, addresses)
{
    struct rg_nvml_address address;
    cr_assert(rg_nvml_parse_address("0000:01:00.0", &address));
    cr_expect(address.domain == 0 && address.bus == 1 && address.device == 0 && address.function == 0);
    cr_assert(rg_nvml_parse_address("0001BEEF:c1:1F.7", &address));
    cr_expect(address.domain == 0x1beef && address.bus == 0xc1 && address.device == 0x1f &&
              address.function == 7);
    cr_assert(rg_nvml_parse_address("65:0", &address));
    cr_expect(address.domain == 0 && address.bus == 0x65 && address.device == 0);
    cr_assert(rg_nvml_parse_address("ffffffff:00:00.0", &address));
    cr_expect_eq(address.domain, 0xffffffff);
}

Test(nvml_text, what_is_no_address)
{
    static const char *const wrong[] = {
        "",          "GPU-1",       "1",          "0000:01:00.8", "0000:100:00.0",
        "0:01:20.0", "0:01:00.0 ",  " 0:01:00.0", "0:-1:00.0",    "0:01:00.",
        ":01:00.0",  "0x0:01:00.0", "0::00.0",    "0:1:2:3",      "100000000:01:00.0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct rg_nvml_address address = {.bus = 77};
        cr_expect_not(rg_nvml_parse_address(wrong[i], &address), "'%s' was taken", wrong[i]);
        cr_expect_eq(address.bus, 77, "'%s' left something behind", wrong[i]);
    }
}

Test(nvml_text, buffers)
{
    char buffer[8] = "-------";
    cr_expect_eq(rg_nvml_put_text(buffer, 4, "four"), RG_NVML_INSUFFICIENT_SIZE);
    cr_expect_str_eq(buffer, "-------");
    cr_expect_eq(rg_nvml_put_text(buffer, 5, "four"), RG_NVML_SUCCESS);
    cr_expect_str_eq(buffer, "four");
    cr_expect_eq(buffer[5], '-');
    cr_expect_eq(rg_nvml_put_text(buffer, 0, ""), RG_NVML_INSUFFICIENT_SIZE);
    cr_expect_eq(rg_nvml_put_text(NULL, 5, "four"), RG_NVML_INVALID_ARGUMENT);
}

Test(nvml_text, products)
{
    cr_expect_eq(rg_nvml_brand_of("NVIDIA GeForce RTX 4090"), RG_NVML_BRAND_GEFORCE);
    cr_expect_eq(rg_nvml_brand_of("NVIDIA RTX A6000"), RG_NVML_BRAND_NVIDIA_RTX);
    cr_expect_eq(rg_nvml_brand_of("Quadro RTX 8000"), RG_NVML_BRAND_QUADRO_RTX);
    cr_expect_eq(rg_nvml_brand_of("Tesla T4"), RG_NVML_BRAND_TESLA);
    cr_expect_eq(rg_nvml_brand_of("NVIDIA H200"), RG_NVML_BRAND_NVIDIA);
    cr_expect_eq(rg_nvml_brand_of("Software GPU"), RG_NVML_BRAND_UNKNOWN);
    cr_expect_eq(rg_nvml_architecture_of(7, 0), RG_NVML_VOLTA);
    cr_expect_eq(rg_nvml_architecture_of(7, 5), RG_NVML_TURING);
    cr_expect_eq(rg_nvml_architecture_of(8, 6), RG_NVML_AMPERE);
    cr_expect_eq(rg_nvml_architecture_of(8, 9), RG_NVML_ADA);
    cr_expect_eq(rg_nvml_architecture_of(9, 0), RG_NVML_HOPPER);
    cr_expect_eq(rg_nvml_architecture_of(12, 1), RG_NVML_BLACKWELL);
    cr_expect_eq(rg_nvml_architecture_of(99, 0), RG_NVML_ARCHITECTURE_UNKNOWN);
}
